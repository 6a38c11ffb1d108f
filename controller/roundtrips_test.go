package controller

import (
	"context"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// distant is a store as far away as Cassandra: a plain read or write takes one round trip of a millisecond, a
// compare-and-set four. So the time that a call of the controller takes is the number of round trips that wait for one
// another.
type distant struct{ metadata.Store }

func (d distant) trips(n int) { <-time.After(time.Duration(n) * time.Millisecond) }

func (d distant) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	d.trips(4)
	return d.Store.Insert(ctx, t, k, value)
}

// InsertVersion says which version the row has, as Cassandra does.
func (d distant) InsertVersion(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) (metadata.Version, error) {
	if err := d.Insert(ctx, t, k, value); err != nil {
		return 0, err
	}
	row, err := d.Store.Get(ctx, t, k, metadata.Serial)
	return row.Version, err
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

// TestRoundTrips_OfExtents counts the round trips to the metadata that wait for one another when an extent is created,
// and when it is sealed.
func TestRoundTrips_OfExtents(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: beside, meta: distant{memory.New()}}, func(r *harness) {
		ap, cp := r.queue(3, 2), r.chainedQueue()
		e := r.extent(ap, 10)
		begun, err := r.ctl.ensureExtent(r.t.Context(), r.oneMore(r.wish(ap)))
		r.ok(err)
		for _, s := range r.replicas(begun) {
			s.write(begun, numbers(1, 10)...)
		}
		r.sleep(time.Minute) // what is new is known
		elsewhere := metadata.SealRecord{Extent: begun, State: core.ExtentSealing, Floor: 10, Attempt: core.NewID(time.Now()), Changed: time.Now()}
		r.ok(metadata.Create(r.t.Context(), r.meta.(distant).Store, metadata.Seals, metadata.SealKey(begun.ID), elsewhere))
		var head core.Extent
		for _, c := range []struct {
			what string
			do   func()
			want int // the calls that wait for one another
		}{
			{"the first extent of an AP queue, whose row the input host has: create row and hint, queue", func() { r.knowing(ap) }, 2},
			{"another extent of it: the same", func() { r.knowing(ap) }, 2},
			{"one whose input host does not say the row: queue, create row and hint, queue", func() { r.another(ap) }, 3},
			{"the first head of a CP queue: queue, head, insert of the head, create row and hint, queue", func() { head = r.extent(cp, 10) }, 1 + 1 + 4 + 1 + 1},
			{"a seal: insert of the row beside the open hint, update", func() { r.end(e) }, 4 + 4},
			{"one that another controller has begun: insert, row at Serial, row, update", func() { r.end(begun) }, 4 + 1 + 1 + 4},
			{"the seal of a head", func() { r.end(head) }, 4 + 4},
			{"the next head: head and queue, seal row, head, update of the head, create row and hint, queue", func() { r.extent(cp, 10) }, 1 + 1 + 1 + 4 + 1 + 1},
		} {
			began := time.Now()
			c.do()
			if got := int(time.Since(began) / time.Millisecond); got != c.want {
				t.Errorf("%s: %d round trips, want %d", c.what, got, c.want)
			}
		}
	})
}

// another makes one more extent for the input host of the first one.
func (r *harness) another(queue core.QueueID) {
	r.t.Helper()
	_, err := r.ctl.ensureExtent(r.t.Context(), r.oneMore(r.wish(queue)))
	r.ok(err)
}

// oneMore is a wish that the open extents of the queue do not meet.
func (r *harness) oneMore(w wish) wish {
	for _, e := range r.ctl.extents.OpenOf(w.queue) {
		w.have = append(w.have, e.ID)
	}
	return w
}

// wishOf is the wish of an input host that has that row of the queue.
func (r *harness) wishOf(q metadata.QueueRecord) wish {
	w := r.wish(q.ID)
	w.row, w.given = &q, true
	return w
}

// knowing makes an extent for an input host that has the row of the queue.
func (r *harness) knowing(queue core.QueueID) {
	r.t.Helper()
	_, err := r.ctl.ensureExtent(r.t.Context(), r.oneMore(r.wishOf(r.queueRow(queue))))
	r.ok(err)
}

// queueRow is the row of a queue, read past the store of the controller.
func (r *harness) queueRow(queue core.QueueID) metadata.QueueRecord {
	r.t.Helper()
	meta := r.meta
	if d, ok := meta.(distant); ok {
		meta = d.Store
	}
	q, _, err := metadata.Read[metadata.QueueRecord](r.t.Context(), meta, metadata.Queues, metadata.QueueKey(queue), metadata.Quorum)
	r.ok(err)
	return q
}
