package controller

import (
	"testing"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestReconcile_UntellableStarveNobody: more extents than a round looks after cannot be told their ends. A younger one is told soon all the same, and the others are not asked
// about all the time.
func TestReconcile_UntellableStarveNobody(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		s := r.stores[0]
		all := make([]core.Extent, 0, 2*looksAtOnce+1)
		for range cap(all) {
			e := r.extent(r.queue(1, 1), 1)
			_, err := r.seal(e, 1)
			r.ok(err)
			all = append(all, e)
		}
		r.sleep(10 * time.Second)
		younger := all[len(all)-1]
		s.with(func() {
			for _, e := range all[:len(all)-1] {
				delete(s.replicas, e.ID)
			}
			clear(s.calls)
		})
		for _, e := range all {
			r.ctl.extents.Change(e.ID, func(x *catalog.Extent) { x.Told = false })
		}
		r.eventually("the younger one is told", 10*time.Second, func() bool { e, _ := r.ctl.extents.Get(younger.ID); return e.Told })
		before := s.count("/Seal")
		r.sleep(2 * time.Minute)
		if n := s.count("/Seal") - before; n > len(all)*8 {
			t.Errorf("%d calls in two minutes about %d extents", n, len(all))
		}
	})
}

// TestReconcile_FailedOnesComeLater is the order of a round.
func TestReconcile_FailedOnesComeLater(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		now := time.Now()
		var all []catalog.Extent
		for range 4 {
			all = append(all, catalog.Extent{ExtentRecord: metadata.ExtentRecord{Extent: core.Extent{ID: core.ExtentID{ID: core.NewID(now)}}}})
			r.sleep(time.Millisecond)
		}
		old, waits, failed, fresh := all[0], all[1], all[2], all[3]
		r.ctl.noteStuck(waits.ID, true)
		r.ctl.mu.stuck[old.ID] = retry{after: now.Add(-time.Second)}
		r.ctl.mu.stuck[failed.ID] = retry{after: now.Add(-time.Minute)}
		got := r.ctl.fairly([]catalog.Extent{old, waits, failed, fresh}, now)
		if len(got) != 3 || got[0].ID != fresh.ID || got[1].ID != failed.ID || got[2].ID != old.ID {
			t.Errorf("in the order %v", got)
		}
		clear(r.ctl.mu.stuck)
	})
}
