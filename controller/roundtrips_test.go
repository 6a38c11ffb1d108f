package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// distant is a store as far away as Cassandra: a plain read or write takes one round trip of a millisecond, a compare-and-set four. So the time that a call
// of the controller takes is the number of round trips that wait for one another.
type distant struct{ metadata.Store }

func (d distant) trips(n int) { <-time.After(time.Duration(n) * time.Millisecond) }

func (d distant) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	d.trips(4)
	return d.Store.Insert(ctx, t, k, value)
}

func (d distant) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	d.trips(4)
	return d.Store.Update(ctx, t, k, old, value, ttl)
}

func (d distant) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	d.trips(1)
	return d.Store.Get(ctx, t, k, c)
}

func (d distant) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	d.trips(1)
	return d.Store.Put(ctx, t, k, value, at, ttl, c)
}

func (d distant) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	d.trips(1)
	return d.Store.PutAll(ctx, t, rows, c)
}

// TestRoundTrips_OfCreations counts the round trips to the metadata that wait for one another when an extent is created.
func TestRoundTrips_OfCreations(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: beside, meta: distant{memory.New()}}, func(r *harness) {
		ap, cp := r.queue(3, 2), r.chainedQueue()
		r.sleep(time.Minute) // what is new is known
		var head core.Extent
		for _, c := range []struct {
			what string
			do   func()
			want int // the calls that wait for one another
		}{
			{"the first extent of an AP queue: queue, hints, create row, queue", func() { r.extent(ap, 10) }, 4},
			{"another extent of it: the same", func() { r.another(ap) }, 4},
			{"the first head of a CP queue: queue, head, insert of the head, create row and hints, queue", func() { head = r.extent(cp, 10) }, 1 + 1 + 4 + 1 + 1},
			{"its seal", func() { r.end(head) }, -1},
			{"the next head: head and queue, seal row, head, update of the head, create row and hints, queue", func() { r.extent(cp, 10) }, 1 + 1 + 1 + 4 + 1 + 1},
		} {
			began := time.Now()
			c.do()
			if got := int(time.Since(began) / time.Millisecond); got != c.want && c.want >= 0 {
				t.Errorf("%s: %d round trips, want %d", c.what, got, c.want)
			}
		}
	})
}

// another makes one more extent for the input host of the first one.
func (r *harness) another(queue core.QueueID) {
	r.t.Helper()
	w := r.wish(queue)
	for _, e := range r.ctl.extents.OpenOf(queue) {
		w.have = append(w.have, e.ID)
	}
	_, err := r.ctl.ensureExtent(r.t.Context(), w)
	r.ok(err)
}

// inOrder watches the order in which the rows of extents are written.
type inOrder struct {
	metadata.Store
	early atomic.Bool // a create row came before its hints
}

func (x *inOrder) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	if t == metadata.Extents {
		id, err := core.ParseID(k.Row)
		for _, hint := range []metadata.Hint{metadata.HintLive, metadata.HintOpen} {
			if err == nil {
				_, err = x.Store.Get(ctx, metadata.Work, metadata.HintKey(hint, core.ExtentID{ID: id}), metadata.One)
			}
		}
		if err != nil {
			x.early.Store(true)
		}
	}
	return x.Store.Put(ctx, t, k, value, at, ttl, c)
}

// TestEnsure_HintsBeforeCreateRow: whoever finds the create row of an AP extent finds its hints. An extent of a CP queue is made by its head.
func TestEnsure_HintsBeforeCreateRow(t *testing.T) {
	meta := &inOrder{Store: memory.New()}
	bubble(t, harnessOptions{stores: 1, meta: meta}, func(r *harness) {
		_, err := r.ctl.ensureExtent(r.t.Context(), r.wish(r.queue(1, 1)))
		r.ok(err)
		if meta.early.Load() {
			t.Error("a create row came before its hints")
		}
	})
}

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

// TestChain_HintsOfHeadAreWrittenAgain: the hints of a new head could not be written, and its create row was. No writer gets the extent until whoever asks again
// has written them.
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
		for _, hint := range []metadata.Hint{metadata.HintLive, metadata.HintOpen} {
			if _, err := meta.Get(r.t.Context(), metadata.Work, metadata.HintKey(hint, e.ID), metadata.One); err != nil {
				t.Errorf("its %s hint: %v", hint, err)
			}
		}
	})
}
