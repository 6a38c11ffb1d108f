package controller

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata"
)

// hours is calm for tests that only wait for hours to pass.
func hours(c *Config) {
	calm(c)
	c.ReconcileEvery, c.InventoryEvery, c.RetainEvery = 2*time.Minute, 3*time.Minute, 10*time.Minute
}

// orphanOn writes an extent of a queue that nobody knows to a store.
func (r *harness) orphanOn(s *fakeStore) core.Extent {
	e := core.Extent{
		ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: core.QueueID{ID: core.NewID(time.Now())}, Kind: core.KindLog,
		Durability: core.DurabilityFsync, Input: "in", InputRun: newRun(), Token: core.WriterToken{ID: core.NewID(time.Now())}, Replicas: []core.HostID{s.id},
	}
	s.write(e, "a")
	return e
}

// knownOn has the store hold a sealed extent of a queue.
func (r *harness) knownOn(*fakeStore) {
	r.t.Helper()
	e := r.extent(r.queue(1, 1), 5)
	_, err := r.seal(e, 5)
	r.ok(err)
}

// unknownFor waits until the controller has seen an orphan, and has it unknown for so long.
func (r *harness) unknownFor(e core.Extent, d time.Duration) {
	r.t.Helper()
	o := r.ctl.strays.orphans
	r.eventually("it is seen as an orphan", 10*time.Minute, func() bool { return r.value(r.ctl.metrics.orphans) > 0 })
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.queues[e.Queue].since = time.Now().Add(-d)
}

// TestOrphans_AreRemovedWhenTheirQueueIsProvenGone is each condition by itself: none is left out.
func TestOrphans_AreRemovedWhenTheirQueueIsProvenGone(t *testing.T) {
	for name, x := range map[string]struct {
		before func(r *harness) // the orphan
		after  func(r *harness, e core.Extent)
		age    time.Duration
		gone   bool
	}{
		"proven":                         {before: func(r *harness) { r.knownOn(r.stores[0]) }, age: orphanFor, gone: true},
		"not for long enough":            {before: func(r *harness) { r.knownOn(r.stores[0]) }, age: orphanFor - 12*time.Hour},
		"the metadata are younger":       {before: func(*harness) {}, after: func(r *harness, _ core.Extent) { r.knownOn(r.stores[0]) }, age: 2 * orphanFor},
		"the metadata are empty":         {before: func(*harness) {}, age: 2 * orphanFor},
		"the store is of nobody we know": {before: func(r *harness) { r.queue(1, 1) }, age: 2 * orphanFor},
		"it has a create row": {before: func(r *harness) { r.knownOn(r.stores[0]) }, age: 2 * orphanFor, after: func(r *harness, e core.Extent) {
			r.ok(r.ctl.writeRow(r.t.Context(), metadata.ExtentRecord{Extent: e, Created: time.Now()}, time.Now(), metadata.Quorum))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			underrace.One(t, name == "proven")
			bubble(t, harnessOptions{stores: 1, edit: hours}, func(r *harness) {
				x.before(r)
				r.sleep(time.Second)
				e := r.orphanOn(r.stores[0])
				r.sleep(time.Second)
				if x.after != nil {
					x.after(r, e)
				}
				r.unknownFor(e, x.age)
				r.sleep(3 * orphanAgain)
				if has := r.stores[0].has(e.ID) != nil; has == x.gone {
					t.Errorf("the store has it: %v, row %+v", has, r.row(e))
				}
				if row := r.row(e); x.gone && row.State != core.ExtentRetired {
					t.Errorf("row %+v, want a tombstone", row)
				}
				if n := r.value(r.ctl.metrics.orphans); x.gone && n != 0 || !x.gone && n != 1 {
					t.Errorf("%v orphans", n)
				}
			})
		})
	}
}

// TestOrphans_OperatorEndsThem: many at once, with no proof but an operator's word, and one line of the log a minute.
func TestOrphans_OperatorEndsThem(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, edit: hours}, func(r *harness) {
		const many = 50
		for range many {
			r.orphanOn(r.stores[0])
		}
		r.eventually("they are seen", 10*time.Minute, func() bool { return r.value(r.ctl.metrics.orphans) == many })
		if n := strings.Count(r.log.text(), "queues that are not in the metadata"); n == 0 || n > 3 {
			t.Errorf("the log says %d times that there are orphans", n)
		}
		orphans := func(dry bool) *pb.DeleteOrphansResponse {
			t.Helper()
			resp, err := (&service{r.ctl.Host}).DeleteOrphans(r.t.Context(), connect.NewRequest(&pb.DeleteOrphansRequest{DryRun: dry, Who: "me"}))
			r.ok(err)
			return resp.Msg
		}
		if got := orphans(true); got.Count != many || len(got.Extents) != many || len(got.Extents[0].Stores) != 1 {
			t.Errorf("a dry run shows %v", got)
		}
		r.sleep(3 * orphanAgain)
		if n := len(r.stores[0].replicas); n != many {
			t.Fatalf("%d are left after a dry run", n)
		}
		orphans(false)
		r.eventually("they are removed", 10*time.Minute, func() bool {
			r.stores[0].mu.Lock()
			defer r.stores[0].mu.Unlock()
			return len(r.stores[0].replicas) == 0
		})
		r.eventually("none is counted", time.Minute, func() bool { return r.value(r.ctl.metrics.orphans) == 0 })
	})
}

// TestOrphans_AreBounded: of more queues than are remembered, some wait; those that nobody shows any more make room.
func TestOrphans_AreBounded(t *testing.T) {
	o, now := newOrphans(), time.Now()
	o.most = 2
	e := func() core.Extent {
		return core.Extent{ID: core.ExtentID{ID: core.NewID(now)}, Queue: core.QueueID{ID: core.NewID(now)}}
	}
	a, b, c := e(), e(), e()
	for _, x := range []core.Extent{a, b, c} {
		if o.seen(x, now) {
			t.Error("due at once")
		}
	}
	if len(o.mu.queues) != 2 {
		t.Errorf("%d are remembered", len(o.mu.queues))
	}
	for range 6 {
		now = now.Add(24 * time.Hour)
		if o.seen(a, now) {
			t.Errorf("due before its time")
		}
	}
	if !o.seen(a, now.Add(24*time.Hour)) {
		t.Error("not due after seven days")
	}
	o.seen(c, now)
	if _, known := o.mu.queues[c.Queue]; !known || len(o.mu.queues) != 2 {
		t.Error("a queue of which nothing is there any more makes no room")
	}
	if now = now.Add(100 * 24 * time.Hour); o.seen(a, now) {
		t.Error("due although nobody knows whether it was unknown meanwhile")
	}
}
