package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// copied makes a sealed extent with so many copies, of a queue of one of two controllers and in a range of inventories
// of one of them.
func (r *harness) copied(both [2]*running, copies, queueBy, rangeBy int) core.Extent {
	r.t.Helper()
	for {
		q := r.queue(copies, 1)
		if of(both, q) != queueBy {
			continue
		}
		e, err := both[queueBy].ensureExtent(r.t.Context(), r.wish(q))
		r.ok(err)
		if !both[rangeBy].inventories(e.ID) {
			continue
		}
		for _, s := range r.replicas(e) {
			s.write(e, numbers(1, 5)...)
		}
		_, err = r.sealBy(both[queueBy], e, 5)
		r.ok(err)
		return e
	}
}

// TestLost_FoundByAnotherController: the only copy of an extent loses records. The controller that compares inventories
// finds it, and another one is responsible for the queue. The loss is reported, or given up, as with one controller.
func TestLost_FoundByAnotherController(t *testing.T) {
	for i := range 4 {
		rangeBy, gone := i%2, i/2 == 0
		t.Run(fmt.Sprintf("range=%d/gone=%t", rangeBy, gone), func(t *testing.T) {
			two(t, harnessOptions{stores: 2}, func(r *harness, both [2]*running) {
				e := r.copied(both, 1, 1, rangeBy)
				r.sleep(2 * time.Minute)
				s := r.replicas(e)[0]
				r.kill(s.id)
				s.lose(e, 2, gone)
				r.restart(s)
				lost := func() float64 { return r.value(both[0].metrics.lost) + r.value(both[1].metrics.lost) }
				r.eventually("it is reported", 2*time.Minute, func() bool { return lost() == 1 })
				_, err := r.forceSeal(e)
				r.ok(err)
				r.eventually("it is not reported any more", 2*time.Minute, func() bool { return lost() == 0 })
			})
		})
	}
}

// TestLost_WhenControllersChange: what a controller reports as lost is found by another one, which took over the queue.
// It is not reported any more.
func TestLost_WhenControllersChange(t *testing.T) {
	for copies := range 2 {
		two(t, harnessOptions{stores: 2, edit: seldom}, func(r *harness, both [2]*running) {
			var all []core.Extent
			for i := range 16 {
				all = append(all, r.copied(both, copies+1, i%2, i/2%2))
			}
			r.sleep(2 * time.Minute)
			kept := make(map[core.ExtentID][][]byte)
			for _, e := range all {
				for _, s := range r.replicas(e) {
					kept[e.ID] = s.has(e.ID).batches
					s.edit(e.ID, func(x *fakeReplica) { x.batches = x.batches[:3] })
				}
			}
			controllers := both[:]
			lost := func() (n int) {
				for _, c := range controllers {
					n += int(r.value(c.metrics.lost))
				}
				return n
			}
			r.eventually("all are reported", 3*time.Minute, func() bool { return lost() >= len(all) })
			third := r.beside("ctl3")
			defer third.end()
			controllers = append(controllers, third)
			r.sleep(2 * time.Minute)
			for _, e := range all {
				for _, s := range r.replicas(e) {
					s.edit(e.ID, func(x *fakeReplica) { x.batches = kept[e.ID] })
				}
			}
			took := 0 * time.Second
			for ; lost() > 0; took += time.Second {
				if r.sleep(time.Second); took > 10*time.Minute {
					r.t.Fatalf("%d are still reported: %v, %v and %v", lost(), r.value(both[0].metrics.lost), r.value(both[1].metrics.lost), r.value(third.metrics.lost))
				}
			}
			for _, e := range all {
				r.whole(e, 5, copies+1)
			}
		})
	}
}
