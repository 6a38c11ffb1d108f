package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
)

// refusesHints is a store that may refuse hints.
type refusesHints struct {
	metadata.Store
	refuses atomic.Bool
}

func (x *refusesHints) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	if t == metadata.Work && x.refuses.Load() {
		return core.Errorf(core.CodeUnavailable, "refused")
	}
	return x.Store.PutAll(ctx, t, rows, c)
}

func (x *refusesHints) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	if t == metadata.Work && x.refuses.Load() {
		return core.Errorf(core.CodeUnavailable, "refused")
	}
	return x.Store.Put(ctx, t, k, value, at, ttl, c)
}

// TestChain_HintsOfHeadAreWrittenAgain: the hints of a new head could not be written, and its create row was. No writer
// gets the extent until whoever asks again has written them.
func TestChain_HintsOfHeadAreWrittenAgain(t *testing.T) {
	meta := &refusesHints{Store: memory.New()}
	bubble(t, harnessOptions{stores: 3, meta: meta}, func(r *harness) {
		queue := r.chainedQueue()
		meta.refuses.Store(true)
		if e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue)); err == nil {
			t.Errorf("a writer got head %s without hints", e.ID)
		}
		head, err := metadata.ReadHead(r.t.Context(), meta, queue, metadata.Serial)
		r.ok(err)
		if _, err := r.created(meta, head.Extent, metadata.Quorum); err != nil {
			t.Errorf("its create row: %v", err)
		}
		meta.refuses.Store(false)
		e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		if e.ID != head.Extent.ID {
			t.Errorf("got extent %s, want the head %s", e.ID, head.Extent.ID)
		}
		if !r.hinted(metadata.HintLive, e.ID) {
			t.Error("it has no live hint")
		}
	})
}

func (r *harness) hinted(hint metadata.Hint, id core.ExtentID) bool {
	r.t.Helper()
	_, err := r.meta.Get(r.t.Context(), metadata.Work, metadata.HintKey(hint, id), metadata.One)
	if core.CodeOf(err) != core.CodeNotFound {
		r.ok(err)
	}
	return err == nil
}

// createRows are the create rows of a queue.
func (r *harness) createRows(queue core.QueueID) (out []metadata.ExtentRecord) {
	r.t.Helper()
	for row, err := range metadata.All[metadata.ExtentRecord](r.t.Context(), r.meta, metadata.Extents, queue.String(), metadata.Quorum) {
		r.ok(err)
		out = append(out, row.Value)
	}
	return out
}

// liveHints are the extents with a live hint.
func (r *harness) liveHints() (out []core.ExtentID) {
	r.t.Helper()
	for row, err := range metadata.Hints(r.t.Context(), r.meta, metadata.HintLive, metadata.Quorum) {
		r.ok(err)
		out = append(out, row.Value.ID)
	}
	return out
}

// TestEnsure_RowWithoutHintIsRemoved: no writer gets an extent whose hint could not be written, and its create row
// goes.
func TestEnsure_RowWithoutHintIsRemoved(t *testing.T) {
	meta := &refusesHints{Store: memory.New()}
	bubble(t, harnessOptions{stores: 1, meta: meta}, func(r *harness) {
		queue := r.queue(1, 1)
		meta.refuses.Store(true)
		if e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue)); err == nil {
			t.Errorf("a writer got extent %s without a hint", e.ID)
		}
		meta.refuses.Store(false)
		r.eventually("the create row is removed", 10*time.Second, func() bool { return len(r.createRows(queue)) == 0 })
	})
}

// TestEnsure_GivenRowIsBehind: the input host has not heard yet that the queue has other settings.
func TestEnsure_GivenRowIsBehind(t *testing.T) {
	type settings struct{ replicas, least int }
	for name, c := range map[string]struct{ now, given settings }{
		"more replicas":      {now: settings{3, 1}, given: settings{2, 2}},
		"fewer are required": {now: settings{3, 1}, given: settings{9, 9}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3}, func(r *harness) {
				q := r.queueRow(r.queue(c.now.replicas, c.now.least))
				q.Spec.Replicas, q.Spec.MinReplicas = c.given.replicas, c.given.least
				e, err := r.ctl.ensureExtent(r.t.Context(), r.wishOf(q))
				r.ok(err)
				if len(e.Replicas) != c.now.replicas {
					t.Errorf("the extent has replicas %v, want %d", e.Replicas, c.now.replicas)
				}
				r.eventually("it alone has rows", 10*time.Second, func() bool { return len(r.createRows(q.ID)) == 1 && len(r.liveHints()) == 1 })
				if open := r.ctl.extents.OpenOf(q.ID); len(open) != 1 || open[0].ID != e.ID {
					t.Errorf("the controller knows %+v", open)
				}
			})
		})
	}
}

// TestEnsure_GivenRowOfDeletedQueue: the input host has not heard yet that the queue was deleted.
func TestEnsure_GivenRowOfDeletedQueue(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		q := r.queueRow(r.queue(1, 1))
		r.deleted(q.ID)
		e, err := r.ctl.ensureExtent(r.t.Context(), r.wishOf(q))
		if core.CodeOf(err) != core.CodeNotFound {
			t.Errorf("got extent %s of a deleted queue: %v", e.ID, err)
		}
	})
}

// TestEnsure_NoMajorityIsFoundOutByAReading: while no majority answers, an extent that needs one is not written first,
// and removed then.
func TestEnsure_NoMajorityIsFoundOutByAReading(t *testing.T) {
	apart(t, harnessOptions{stores: 1}, func(r *harness, meta *faulty.Replicas) {
		q := r.queueRow(r.queue(1, 1))
		meta.Repair()
		meta.Cut()
		for range 5 { // all but the first know
			_, err := r.ctl.ensureExtent(r.t.Context(), r.oneMore(r.wishOf(q)))
			r.ok(err)
			r.sleep(2 * time.Second)
		}
		unmarked := 0
		for row, err := range metadata.All[metadata.ExtentRecord](r.t.Context(), meta.Apart(), metadata.Extents, q.ID.String(), metadata.One) {
			r.ok(err)
			if row.Value.Minority == (metadata.Maker{}) {
				unmarked++
			}
		}
		if unmarked > 1 {
			t.Errorf("%d extents were written before it was known that no majority answers", unmarked)
		}
	})
}

// TestSeal_WritesTheOpenHint: an extent has the open hint from the beginning of its seal until its holders were told.
func TestSeal_WritesTheOpenHint(t *testing.T) {
	meta := &endsHinted{Store: memory.New()}
	bubble(t, harnessOptions{stores: 2, meta: meta}, func(r *harness) {
		e := r.extent(r.queue(2, 2), 10)
		if r.hinted(metadata.HintOpen, e.ID) {
			t.Error("an extent that nobody seals has the open hint")
		}
		r.end(e)
		if meta.bare.Load() {
			t.Error("the row says that the extent has an end, and it has no open hint")
		}
		r.eventually("the hint goes", 10*time.Second, func() bool { return !r.hinted(metadata.HintOpen, e.ID) })
	})
}

// TestSeal_BegunElsewhereGetsTheOpenHint: another controller died when it had made the seal row, before the hint was
// there. This one takes the extent for open, and its first writing of the hint fails.
func TestSeal_BegunElsewhereGetsTheOpenHint(t *testing.T) {
	meta := &endsHinted{Store: memory.New()}
	bubble(t, harnessOptions{stores: 2, meta: meta}, func(r *harness) {
		e := r.extent(r.queue(2, 2), 10)
		begun := metadata.SealRecord{Extent: e, State: core.ExtentSealing, Floor: 10, Changed: time.Now()}
		r.ok(metadata.Create(r.t.Context(), meta.Store, metadata.Seals, metadata.SealKey(e.ID), begun))
		key := metadata.HintKey(metadata.HintOpen, e.ID)
		meta.refuse.Store(&key)
		if _, err := r.seal(e, 10); err == nil || meta.refuse.Load() != nil {
			t.Errorf("the seal answers %v, though the hint was not written; want an error", err)
		}
		r.end(e)
		if meta.bare.Load() {
			t.Error("the row says that the extent has an end, and it has no open hint")
		}
	})
}

// endsHinted watches that an extent has its open hint when the row says that it has an end.
type endsHinted struct {
	metadata.Store
	bare   atomic.Bool
	refuse atomic.Pointer[metadata.Key] // the next writing of this row; nil: of none
}

func (x *endsHinted) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	if refuse := x.refuse.Load(); t == metadata.Work && refuse != nil && k == *refuse && x.refuse.CompareAndSwap(refuse, nil) {
		return core.Errorf(core.CodeUnavailable, "injected: no copy takes the hint")
	}
	return x.Store.Put(ctx, t, k, value, at, ttl, c)
}

func (x *endsHinted) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if t == metadata.Seals {
		row, err := metadata.Decode[metadata.SealRecord](t, metadata.Row{Key: k, Value: value})
		if err == nil && row.State == core.ExtentSealed {
			_, err = x.Store.Get(ctx, metadata.Work, metadata.HintKey(metadata.HintOpen, row.Extent.ID), metadata.One)
		}
		if err != nil {
			x.bare.Store(true)
		}
	}
	return x.Store.Update(ctx, t, k, old, value, ttl)
}

// TestStart_FindsRowWithoutHint: the controller died between the rows of a new extent. The start of a group lists the
// create rows, and has the extent sealed.
func TestStart_FindsRowWithoutHint(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		queue := r.queue(1, 1)
		e := r.extent(queue, 0)
		lone := e
		lone.ID, lone.Token = core.ExtentID{ID: core.NewID(time.Now())}, core.WriterToken{ID: core.NewID(time.Now())}
		r.ok(r.ctl.writeRow(r.t.Context(), metadata.ExtentRecord{Extent: lone, Created: time.Now(), Wanted: 1}, time.Now(), metadata.Quorum))
		r.sleep(strayAfter)
		g := metadata.GroupRecord{ID: core.GroupID{ID: core.NewID(time.Now())}, Queue: queue, Spec: core.GroupSpec{Name: "g", Status: core.StatusEnabled}}
		r.ok(metadata.Create(r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, "g"), g))
		r.ok(r.startGroup(r.ctl, queue, "g"))
		if !r.hinted(metadata.HintLive, lone.ID) {
			t.Error("the extent has no hint")
		}
		r.eventually("it is sealed", 10*time.Minute, func() bool { return r.row(lone).State == core.ExtentSealed })
	})
}

// TestLoad_SealSinceTheOpenHintsWereRead: another controller sealed the extent between the two readings, and may die
// before its holders know the end.
func TestLoad_SealSinceTheOpenHintsWereRead(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		e := r.extent(r.queue(1, 1), 10)
		record, err := r.created(r.meta, e, metadata.Quorum)
		r.ok(err)
		r.end(e)
		r.eventually("its holder knows the end", 10*time.Second, func() bool { return !r.hinted(metadata.HintOpen, e.ID) })
		r.ok(r.ctl.writeHint(r.t.Context(), metadata.HintOpen, record, time.Now().Add(time.Second), metadata.One)) // as before it was told
		h := r.idle()
		if found, err := h.takeIn(r.t.Context(), []metadata.ExtentRecord{record}, make(map[core.ExtentID]bool)); found != 1 || err != nil {
			t.Fatalf("found %d, %v", found, err)
		}
		if known, _ := h.extents.Get(e.ID); known.State != core.ExtentSealed || known.Told {
			t.Errorf("the extent is known as %+v", known)
		}
	})
}
