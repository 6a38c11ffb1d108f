package controller

import (
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestSeal_ThoseThatFailHoldUpNobody: many extents are on a store that hangs, and their writers ask again and again.
func TestSeal_ThoseThatFailHoldUpNobody(t *testing.T) {
	bubble(t, harnessOptions{stores: 2, edit: func(c *Config) { c.SealsAtOnce = 8 }}, func(r *harness) {
		var dead, well []core.Extent
		for len(dead) < 40 || len(well) < 10 {
			e := r.extent(r.queue(1, 1), 3)
			if e.Replicas[0] == "s0" {
				dead = append(dead, e)
			} else {
				well = append(well, e)
			}
		}
		r.hang(r.stores[0])
		r.sleep(5 * time.Second) // it is known not to answer
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for _, e := range dead {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(250 * time.Millisecond):
						r.seal(e, 3)
					}
				}
			})
		}
		r.sleep(20 * time.Second)
		for _, e := range well[:10] {
			began := time.Now()
			_, err := r.seal(e, 3)
			r.ok(err)
			if took := time.Since(began); took > time.Second {
				t.Errorf("a seal that needs only the store that is well took %s", took)
			}
		}
		close(stop)
		wg.Wait()
	})
}

// deleted marks a queue as deleted.
func (r *harness) deleted(queue core.QueueID) {
	_, err := metadata.Change(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(queue), func(q *metadata.QueueRecord) error {
		q.Spec.Status = core.StatusDeleted
		return nil
	})
	r.ok(err)
}

// TestRetire_DeletedQueueWhoseStoreIsLost: nobody needs the end of its extent any more. A store that comes back after
// all has its replica removed.
func TestRetire_DeletedQueueWhoseStoreIsLost(t *testing.T) {
	bubble(t, harnessOptions{stores: 2}, func(r *harness) {
		queue := r.queue(1, 1)
		e := r.extent(queue, 3)
		lost := r.replicas(e)[0]
		r.kill(lost.id)
		r.deleted(queue)
		r.eventually("the extent is retired", 2*time.Minute, func() bool { _, live := r.ctl.extents.Get(e.ID); return !live })
		if row := r.row(e); row.State != core.ExtentRetired {
			t.Errorf("row %+v", row)
		}
		if got, err := r.seal(e, 3); err != nil || got.L != 0 {
			t.Errorf("its writer gets %v, %v; want that nothing is kept", got, err)
		}
		r.restart(lost)
		r.eventually("its replica is removed", 2*time.Minute, func() bool { return lost.has(e.ID) == nil })
	})
}

// TestSeal_ForceWhenNothingIsLeft: all disks of an extent were replaced, so its end can never be known. An operator's
// force ends it empty, and its queue goes on.
func TestSeal_ForceWhenNothingIsLeft(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(2, 2), 5)
		first, second := r.replicas(e)[0], r.replicas(e)[1]
		force := order{extent: e, floor: 5, reason: "operator", force: true}
		for _, s := range r.replicas(e) {
			r.kill(s.id)
		}
		first.wipe()
		r.restart(first)
		r.sleep(5 * time.Second)
		if _, err := r.ctl.Host.seal(r.t.Context(), force); err == nil {
			t.Fatal("it was ended while a disk may come back")
		}
		second.wipe()
		r.restart(second)
		r.sleep(5 * time.Second)
		if _, err := r.seal(e, 5); err == nil {
			t.Fatal("it was ended without an operator's word")
		}
		_, err := r.ctl.Host.seal(r.t.Context(), force)
		r.ok(err)
		if row := r.row(e); row.L != 0 || !row.Forced || row.Lost != 5 {
			t.Errorf("row %+v", row)
		}
		if got, err := r.seal(e, 5); err != nil || got.L != 0 {
			t.Errorf("its writer gets %v, %v; want that nothing is kept", got, err)
		}
		r.eventually("it has all its copies, of nothing", time.Minute, func() bool { return len(r.row(e).Holders) == 2 })
		r.sleep(5 * time.Second)
		r.whole(e, 0, 2)
		if lost := r.lost(); lost != 0 {
			t.Errorf("reported as lost: %v", lost)
		}
	})
}
