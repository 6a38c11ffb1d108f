package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// slowQueues is metadata of which a serial read of a queue takes a second.
type slowQueues struct {
	metadata.Store
	on atomic.Bool
}

func (s *slowQueues) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if t == metadata.Queues && c == metadata.Serial && s.on.Load() {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return s.Store.Get(ctx, t, k, c)
}

// Each queue with extents is looked up now and then, lest it was deleted. Slow metadata must not hold up the seals of a
// writer that is gone.
func TestRun_SlowLooksForDeletedQueuesHoldUpNoSeal(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		meta := &slowQueues{Store: r.meta}
		r.ctl.end()
		r.use(meta)
		r.ctl = r.startController(nil)
		var last core.Extent
		for range 60 {
			last = r.extent(r.queue(1, 1), 1)
		}
		meta.on.Store(true)
		r.sleep(retireEvery + time.Second) // a look is under way, for a minute
		r.kill("in")
		r.leave("in")
		took := r.eventually("the extents of a writer that is gone are sealed", 30*time.Second, func() bool {
			e, _ := r.ctl.extents.Get(last.ID)
			return e.State.HasEnd()
		})
		t.Logf("sealed after %s", took)
	})
}

// slowLists is metadata of which a list of a queue's groups takes a second.
type slowLists struct {
	metadata.Store
	on atomic.Bool
}

func (s *slowLists) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if t == metadata.Groups && s.on.Load() {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return s.Store.List(ctx, t, partition, after, limit, c)
}

// A round of assignment looks at the groups of each queue. Slow metadata must not hold up the seals of a writer that is
// gone.
func TestRun_SlowRoundsHoldUpNoSeal(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		meta := &slowLists{Store: r.meta}
		r.ctl.end()
		r.use(meta)
		r.ctl = r.startController(nil)
		var last core.Extent
		for range 60 {
			last = r.extent(r.queue(1, 1), 1)
		}
		r.sleep(time.Second)
		meta.on.Store(true)
		r.sleep(missedEvery + 5*time.Second) // a round is under way, for a minute
		r.kill("in")
		r.leave("in")
		took := r.eventually("the extents of a writer that is gone are sealed", time.Minute, func() bool {
			e, _ := r.ctl.extents.Get(last.ID)
			return e.State.HasEnd()
		})
		if took > 2*time.Second {
			t.Errorf("sealed after %s", took)
		}
	})
}

// TestDeleted_SlowReadsOfManyQueues: what goes of a deleted queue, and what a queue keeps no longer, waits for no
// serial read of each other queue.
func TestDeleted_SlowReadsOfManyQueues(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, edit: calm}, func(r *harness) {
		meta := &slowQueues{Store: r.meta}
		r.ctl.end()
		r.use(meta)
		r.ctl = r.startController(calm)
		for range 300 {
			r.extent(r.queue(1, 1), 1)
		}
		deleted, short := r.queue(1, 1), r.queue(1, 1)
		gone, old := r.sealed(deleted, 1), r.sealed(short, 1)
		group := r.group(short, "g")
		r.done(group, old)
		r.sleep(time.Minute)
		change := func(queue core.QueueID, f func(*core.QueueSpec)) {
			_, err := metadata.Change(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(queue), func(q *metadata.QueueRecord) error { f(&q.Spec); return nil })
			r.ok(err)
			r.ok(r.ctl.takeInHere(r.t.Context(), queue, nil)) // as a frontend tells
		}
		change(deleted, func(q *core.QueueSpec) { q.Status = core.StatusDeleted })
		hint := metadata.DeletedQueueRecord{Queue: deleted, At: time.Now(), Done: true}
		r.ok(metadata.Write(r.t.Context(), r.meta, metadata.Work, metadata.DeletedQueueKey(deleted), hint, time.Now(), 0, metadata.Quorum))
		change(short, func(q *core.QueueSpec) { q.ConsumedRetention = time.Second })
		meta.on.Store(true)
		took := r.eventually("the extent of the deleted queue is removed", 10*time.Minute, func() bool { return r.held(gone) == 0 })
		if took > 30*time.Second {
			t.Errorf("the extent of the deleted queue was removed after %s", took)
		}
		took += r.eventually("the consumed extent is removed", 20*time.Minute, func() bool { return r.held(old) == 0 })
		if took > 5*time.Minute {
			t.Errorf("the consumed extent was removed after %s", took)
		}
	})
}
