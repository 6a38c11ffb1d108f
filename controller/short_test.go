package controller

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestLost_OnlyHolderIsShort: the only holder of an extent comes back with an older copy of its directory, on the same
// disk. The loss is an alarm, what is left is told its end, so that readers get it, and an operator can give up the
// rest.
func TestLost_OnlyHolderIsShort(t *testing.T) {
	for name, older := range map[string]func(x *fakeReplica){
		"open":   func(x *fakeReplica) { x.fenced, x.sealed, x.l = false, false, 0 },
		"fenced": func(x *fakeReplica) { x.sealed, x.l = false, 0 },
		"sealed": func(x *fakeReplica) {},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 1}, func(r *harness) {
				s := r.stores[0]
				e := r.extent(r.queue(1, 1), 5)
				if _, err := r.seal(e, 5); err != nil {
					t.Fatal(err)
				}
				r.sleep(time.Minute)
				r.whole(e, 5, 1)
				r.kill(s.id)
				r.sleep(10 * time.Second)
				s.edit(e.ID, func(x *fakeReplica) {
					x.batches, x.committed = x.batches[:3], 0
					older(x)
				})
				r.restart(s)
				r.eventually("the loss is reported", 2*time.Minute, func() bool { return r.value(r.ctl.metrics.lost) == 1 })
				if below := r.value(r.ctl.metrics.below); below != 1 {
					t.Errorf("%v extents below the minimum", below)
				}
				r.eventually("what is left is told its end", time.Minute, func() bool { x := s.has(e.ID); return x.sealed && x.l == 5 && x.last() == 3 })
				if _, err := r.forceSeal(e); err != nil {
					t.Fatalf("give up what is lost: %v", err)
				}
				r.given(r.row(e), 4)
				r.allLeft(e, 1, time.Minute)
				r.eventually("nothing is reported any more", time.Minute, func() bool { return r.value(r.ctl.metrics.lost)+r.value(r.ctl.metrics.below) == 0 })
			})
		})
	}
}

// TestLost_LastHolderIsShortAndComesBackWhole: the operator finds the newer directory after all.
func TestLost_LastHolderIsShortAndComesBackWhole(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		s := r.stores[0]
		e := r.extent(r.queue(1, 1), 5)
		if _, err := r.seal(e, 5); err != nil {
			t.Fatal(err)
		}
		r.sleep(time.Minute)
		whole := s.has(e.ID).batches
		r.kill(s.id)
		s.edit(e.ID, func(x *fakeReplica) { x.batches = x.batches[:3] })
		r.restart(s)
		r.eventually("the loss is reported", 2*time.Minute, func() bool { return r.value(r.ctl.metrics.lost) == 1 })
		r.kill(s.id)
		s.edit(e.ID, func(x *fakeReplica) { x.batches = whole })
		r.restart(s)
		r.eventually("nothing is reported any more", 2*time.Minute, func() bool { return r.value(r.ctl.metrics.lost)+r.value(r.ctl.metrics.below) == 0 })
		if row := r.row(e); row.LostFrom != 0 || len(row.Holders) != 1 || row.L != core.Seq(5) {
			t.Errorf("row %+v", row)
		}
	})
}
