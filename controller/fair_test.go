package controller

import (
	"testing"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
)

// TestReconcile_UntellableStarveNobody: more extents than a round looks after cannot be told their ends. A younger one
// is told soon all the same, and the others are not asked about all the time.
func TestReconcile_UntellableStarveNobody(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		s := r.stores[0]
		all := make([]core.Extent, 0, looksAtOnce+32)
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
