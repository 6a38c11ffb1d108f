package controller

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
)

// apart has a controller whose side of the metadata can be cut off.
func apart(t *testing.T, o harnessOptions, f func(r *harness, meta *faulty.Replicas)) {
	t.Helper()
	meta := faulty.NewReplicas(faulty.Divergence{Seed: 1, Never: 1})
	o.edit, o.meta = beside, meta.Apart()
	bubble(t, o, func(r *harness) {
		r.use(meta.Whole())
		r.eventually("the controller has its session", 20*time.Second, r.ctl.duties.Holds)
		f(r, meta)
	})
}

// renews has output hosts heard from now on, unless they are silent.
func (r *harness) renews(outputs ...int) {
	for _, i := range outputs {
		o, done := r.outputs[i], r.ctl.tasks.Context().Done()
		r.renew(o)
		r.wg.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(500 * time.Millisecond):
				}
				o.mu.Lock()
				silent := o.silent
				o.mu.Unlock()
				if !silent {
					r.renew(o)
				}
			}
		})
	}
}

// sharesIn is how many shares of an extent are in the lists of output hosts: in those of queues, or in those of
// minorities.
func (r *harness) sharesIn(e core.ExtentID, minority bool) (n int) {
	for _, o := range r.outputs {
		o.mu.Lock()
		lists := o.lists
		if minority {
			lists = o.minority
		}
		for _, l := range lists {
			for _, a := range l.Assignments {
				if core.ID(a.Extent.Id) == e.ID {
					n++
				}
			}
		}
		o.mu.Unlock()
	}
	return n
}

func (r *harness) created(meta metadata.Store, e core.Extent, c metadata.Consistency) (metadata.ExtentRecord, error) {
	row, _, err := metadata.Read[metadata.ExtentRecord](r.t.Context(), meta, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), c)
	return row, err
}

// TestEnsure_DeletionFindsEachExtent: a deletion reads the create rows at Quorum, and frees the path of the queue when
// the extents that it finds are sealed.
func TestEnsure_DeletionFindsEachExtent(t *testing.T) {
	apart(t, harnessOptions{stores: 1}, func(r *harness, meta *faulty.Replicas) {
		for range 20 {
			e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(r.queue(1, 1)))
			r.ok(err)
			if _, err := r.created(meta, e, metadata.Quorum); err != nil {
				t.Fatalf("a writer has an extent, and a deletion does not find it: %v", err)
			}
		}
	})
}

func TestMinority_MakesExtentsOfAPQueues(t *testing.T) {
	apart(t, harnessOptions{stores: 2, outputs: 1}, func(r *harness, meta *faulty.Replicas) {
		queue := r.queue(2, 1)
		before, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		ordered := r.queue(2, 1)
		_, err = metadata.Change(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(ordered), func(q *metadata.QueueRecord) error {
			q.Spec.Consistency = core.CP
			return nil
		})
		r.ok(err)
		meta.Repair()
		meta.Cut()
		began := time.Now()
		e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
		if e.ID == before.ID {
			t.Error("a writer gets an extent of before the cut: nobody knows whether its queue was deleted")
		}
		row, err := r.created(meta.Apart(), e, metadata.One)
		r.ok(err)
		if row.Minority != (metadata.Maker{Controller: "ctl", Run: r.self.Run}) {
			t.Errorf("the create row names the maker %+v", row.Minority)
		}
		if again, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue)); err != nil || again.ID != e.ID {
			t.Errorf("a writer that asks again gets %s, %v, want %s", again.ID, err, e.ID)
		}
		_, err = r.ctl.ensureExtent(r.t.Context(), r.wish(ordered))
		if core.CodeOf(err) != core.CodeNoMajority || !strings.Contains(err.Error(), "no majority") {
			t.Errorf("of a CP queue: %v", err)
		}
		meta.Rejoin()
		r.eventually("the extent is released", 5*time.Second, func() bool {
			known, _ := r.ctl.extents.Get(e.ID)
			return known.Minority == metadata.Maker{}
		})
		row, err = r.created(meta, e, metadata.Quorum)
		r.ok(err)
		if row.Minority != (metadata.Maker{}) || !row.Extent.Equal(e) {
			t.Errorf("the row at Quorum is %+v", row)
		}
	})
}

// TestMinority_SlowMajority: a call to a majority that hangs holds a creation up for a second, and none after it.
func TestMinority_SlowMajority(t *testing.T) {
	meta := &hanging{Store: memory.New()}
	bubble(t, harnessOptions{stores: 1, edit: beside, meta: meta}, func(r *harness) {
		queue := r.queue(1, 1)
		meta.hangs.Store(true)
		for _, most := range []time.Duration{1100 * time.Millisecond, 100 * time.Millisecond} {
			began := time.Now()
			e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
			r.ok(err)
			if took := time.Since(began); took > most {
				t.Errorf("it took %s, want %s at most", took, most)
			}
			if known, _ := r.ctl.extents.Get(e.ID); known.Minority == (metadata.Maker{}) {
				t.Error("the extent counts as one that a majority knows")
			}
		}
		meta.hangs.Store(false)
	})
}

// hanging answers at One only while it hangs.
type hanging struct {
	metadata.Store
	hangs atomic.Bool
}

func (s *hanging) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if c > metadata.One && s.hangs.Load() {
		<-ctx.Done()
		return metadata.Row{}, core.Errorf(core.CodeUnavailable, "it does not answer: %w", context.Cause(ctx))
	}
	return s.Store.Get(ctx, t, k, c)
}

// TestMinority_SharesAreAssignedBesideTheQueues: groups get what was published in the cut, by lists of its own; those
// that deliver at most once, and those of extents of before, get nothing from them.
func TestMinority_SharesAreAssignedBesideTheQueues(t *testing.T) {
	apart(t, harnessOptions{stores: 2, outputs: 2}, func(r *harness, meta *faulty.Replicas) {
		queue := r.queue(2, 1)
		r.group(queue, "g")
		once := core.GroupID{ID: core.NewID(time.Now())}
		r.ok(metadata.Create(r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, "once"), metadata.GroupRecord{
			ID: once, Queue: queue, Started: true, Spec: core.GroupSpec{Name: "once", Status: core.StatusEnabled, Delivery: core.AtMostOnce},
		}))
		before, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		r.eventually("the shares of the extent of before are assigned", 10*time.Second, func() bool { return r.sharesIn(before.ID, false) == 2 })
		meta.Repair()
		meta.Cut()
		r.renews(0, 1)
		e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		r.eventually("a share of the new extent is assigned", 5*time.Second, func() bool { return r.sharesIn(e.ID, true) == 1 })
		r.sleep(10 * time.Second)
		if n := r.sharesIn(e.ID, false) + r.sharesIn(before.ID, true); n > 0 {
			t.Errorf("%d shares are in the wrong lists", n)
		}
		if n := r.sharesIn(e.ID, true); n != 1 {
			t.Errorf("the new extent has %d shares, want that of the group that delivers at least once", n)
		}
		if !r.ctl.minority.keeps.Load() {
			t.Error("output hosts may not go on with the lists")
		}
		meta.Rejoin()
		r.eventually("the shares are in the queue's own lists", 30*time.Second, func() bool { return r.sharesIn(e.ID, false) == 2 && r.sharesIn(e.ID, true) == 0 })
		if r.ctl.minority.keeps.Load() {
			t.Error("output hosts may go on with the lists of the cut")
		}
	})
}

// shareOfMinority makes an extent without a majority. It answers the extent, and who has its share.
func (r *harness) shareOfMinority(meta *faulty.Replicas) (e core.Extent, owner func() core.HostID) {
	r.t.Helper()
	queue := r.queue(1, 1)
	g := r.group(queue, "g")
	meta.Repair()
	meta.Cut()
	r.renews(0, 1)
	e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
	r.ok(err)
	r.eventually("the share is assigned", 5*time.Second, func() bool { return r.sharesIn(e.ID, true) == 1 })
	return e, func() core.HostID { return r.assigned(meta.Apart(), g, e.ID).Owner }
}

// TestMinority_SharesOfADeadOutputHostMove once it may not deliver any more.
func TestMinority_SharesOfADeadOutputHostMove(t *testing.T) {
	apart(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness, meta *faulty.Replicas) {
		_, owner := r.shareOfMinority(meta)
		first := owner()
		for _, o := range r.outputs {
			if o.id == first {
				r.renew(o)
				o.mu.Lock()
				o.silent = true
				o.mu.Unlock()
			}
		}
		r.sleep(dispatch.OwnerLease)
		if owner() != first {
			t.Error("the share moved while its owner may deliver")
		}
		r.eventually("the other one has it", 3*time.Second, func() bool { return owner() != first && owner() != "" })
	})
}

// TestMinority_ExtentsOfADeadMakerAreTakenOver by a controller that learned of them.
func TestMinority_ExtentsOfADeadMakerAreTakenOver(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1, edit: beside}, func(r *harness) {
		r.eventually("the controller has its session", 20*time.Second, r.ctl.duties.Holds)
		queue := r.queue(1, 1)
		r.group(queue, "g")
		e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: queue, Kind: core.KindLog, Input: r.input.ID, InputRun: r.input.Run, Token: core.WriterToken{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"s0"}, Disks: []core.DiskID{r.stores[0].disk}}
		record := metadata.ExtentRecord{Extent: e, Created: time.Now(), Wanted: 1, Minority: metadata.Maker{Controller: "dead", Run: newRun()}}
		r.ok(r.ctl.writeExtent(r.t.Context(), record, time.Now()))
		r.loads(r.ctl)
		r.sleep(8 * time.Second)
		if n := r.sharesIn(e.ID, false); n > 0 {
			t.Error("the share is assigned while its maker may assign it")
		}
		r.eventually("the share is assigned", 10*time.Second, func() bool { return r.sharesIn(e.ID, false) == 1 })
	})
}
