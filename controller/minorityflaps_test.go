package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
)

// flapping is metadata whose majority is lost in the moment of a write.
type flapping struct {
	metadata.Store
	lost    atomic.Bool
	refused atomic.Int64
}

func (s *flapping) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	if c == metadata.Quorum && s.lost.Load() {
		s.refused.Add(1)
		return core.Errorf(core.CodeUnavailable, "too few copies")
	}
	return s.Store.PutAll(ctx, t, rows, c)
}

// assigned is the newest assignment of a share that one copy of the metadata has.
func (r *harness) assigned(meta metadata.Store, g core.GroupID, e core.ExtentID) (newest metadata.AssignmentRecord) {
	for a, err := range metadata.All[metadata.AssignmentRecord](r.t.Context(), meta, metadata.Assignments, metadata.AssignmentKey(g, e, newest.Precedence()).Partition, metadata.One) {
		r.ok(err)
		if a.Value.Extent.ID == e && a.Value.Counter > newest.Counter {
			newest = a.Value
		}
	}
	return newest
}

// TestMinority_AssignmentsAreAtQuorumAfterAFailedRelease: the controller that goes on from there must find who had the
// shares.
func TestMinority_AssignmentsAreAtQuorumAfterAFailedRelease(t *testing.T) {
	replicas := faulty.NewReplicas(faulty.Divergence{Seed: 1, Never: 1})
	meta := &flapping{Store: replicas.Apart()}
	bubble(t, harnessOptions{stores: 1, outputs: 1, edit: beside, meta: meta}, func(r *harness) {
		r.use(replicas.Whole())
		r.eventually("the controller has its session", 20*time.Second, r.ctl.duties.Holds)
		queue := r.queue(1, 1)
		g := r.group(queue, "g")
		replicas.Repair()
		replicas.Cut()
		r.renews(0)
		e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		r.eventually("the share is assigned", 5*time.Second, func() bool { return r.sharesIn(e.ID, true) == 1 })
		first := r.assigned(replicas.Apart(), g, e.ID)
		meta.lost.Store(true)
		replicas.Rejoin()
		r.eventually("a release failed", 10*time.Second, func() bool { return meta.refused.Load() > 0 })
		replicas.Cut()
		r.sleep(3 * time.Second)
		if n := r.sharesIn(e.ID, true); n != 0 {
			t.Errorf("the extent has %d shares again, and some copy may have its row without the mark", n)
		}
		meta.lost.Store(false)
		replicas.Rejoin()
		r.eventually("the extent is released", 10*time.Second, func() bool {
			known, _ := r.ctl.extents.Get(e.ID)
			return known.Minority == metadata.Maker{}
		})
		key := metadata.AssignmentKey(first.Group, e.ID, first.Precedence())
		if _, err := replicas.Get(r.t.Context(), metadata.Assignments, key, metadata.Quorum); err != nil {
			t.Errorf("the assignment of the share at Quorum: %v", err)
		}
	})
}

// lackingRow is metadata whose one copy does not have the row of a queue.
type lackingRow struct {
	metadata.Store
	queue atomic.Pointer[core.QueueID]
}

func (s *lackingRow) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if q := s.queue.Load(); q != nil && t == metadata.Queues && k == metadata.QueueKey(*q) && c == metadata.One {
		return metadata.Row{}, core.Errorf(core.CodeNotFound, "this copy does not have it")
	}
	return s.Store.Get(ctx, t, k, c)
}

// TestMinority_AQueueThatCannotBeReadHoldsUpNoOther: its own shares stay, too.
func TestMinority_AQueueThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	replicas := faulty.NewReplicas(faulty.Divergence{Seed: 1, Never: 1})
	meta := &lackingRow{Store: replicas.Apart()}
	bubble(t, harnessOptions{stores: 1, outputs: 1, edit: beside, meta: meta}, func(r *harness) {
		r.use(replicas.Whole())
		r.eventually("the controller has its session", 20*time.Second, r.ctl.duties.Holds)
		broken, well := r.queue(1, 1), r.queue(1, 1)
		r.group(broken, "g")
		r.group(well, "g")
		replicas.Repair()
		replicas.Cut()
		r.renews(0)
		first, err := r.ctl.ensureExtent(r.t.Context(), r.wish(broken))
		r.ok(err)
		r.eventually("its share is assigned", 5*time.Second, func() bool { return r.sharesIn(first.ID, true) == 1 })
		meta.queue.Store(&broken)
		second, err := r.ctl.ensureExtent(r.t.Context(), r.wish(well)) // is behind the other one in order
		r.ok(err)
		r.eventually("the share of the other queue is assigned", 5*time.Second, func() bool { return r.sharesIn(second.ID, true) == 1 })
		if n := r.sharesIn(first.ID, true); n != 1 {
			t.Errorf("the queue that cannot be read has %d shares, want the one of before", n)
		}
	})
}
