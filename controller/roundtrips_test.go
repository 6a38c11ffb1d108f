package controller

import (
	"context"
	"strings"
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
			{"the first extent of an AP queue: queue, live hint, create row and open hint, queue", func() { r.extent(ap, 10) }, 4},
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
	early   atomic.Bool // a create row came before its live hint
	refuses atomic.Bool // open hints
}

func (x *inOrder) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	if t == metadata.Extents {
		id, err := core.ParseID(k.Row)
		if err == nil {
			_, err = x.Store.Get(ctx, metadata.Work, metadata.HintKey(metadata.HintLive, core.ExtentID{ID: id}), metadata.One)
		}
		if err != nil {
			x.early.Store(true)
		}
	}
	return x.Store.Put(ctx, t, k, value, at, ttl, c)
}

func (x *inOrder) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	if strings.HasPrefix(rows[0].Key.Partition, string(metadata.HintOpen)) && x.refuses.Load() {
		return core.Errorf(core.CodeUnavailable, "refused")
	}
	return x.Store.PutAll(ctx, t, rows, c)
}

// TestEnsure_LiveHintBeforeCreateRow: whoever finds the create row of an AP extent finds its live hint, and an extent that is answered has both hints.
// One whose open hint cannot be written is not made, and its rows go.
func TestEnsure_LiveHintBeforeCreateRow(t *testing.T) {
	meta := &inOrder{Store: memory.New()}
	bubble(t, harnessOptions{stores: 1, meta: meta}, func(r *harness) {
		queue := r.queue(1, 1)
		e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		for _, hint := range []metadata.Hint{metadata.HintLive, metadata.HintOpen} {
			if _, err := meta.Get(r.t.Context(), metadata.Work, metadata.HintKey(hint, e.ID), metadata.One); err != nil {
				t.Errorf("its %s hint: %v", hint, err)
			}
		}
		if meta.early.Load() {
			t.Error("a create row came before its live hint")
		}
		meta.refuses.Store(true)
		w := r.wish(queue)
		w.have = []core.ExtentID{e.ID}
		if made, err := r.ctl.ensureExtent(r.t.Context(), w); err == nil {
			t.Errorf("extent %s has no open hint", made.ID)
		}
		r.sleep(time.Second)
		rows, _, err := meta.List(r.t.Context(), metadata.Extents, queue.String(), "", 10, metadata.Quorum)
		if err != nil || len(rows) != 1 {
			t.Errorf("the queue has %d create rows (%v), want that of the first extent", len(rows), err)
		}
	})
}
