package controller

import (
	"fmt"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// inRangesOf makes sealed extents until so many are in the ranges of one of two controllers, and answers these.
func (r *harness) inRangesOf(c *running, queue core.QueueID, many int) (out []core.Extent) {
	r.t.Helper()
	for len(out) < many {
		e := r.extent(queue, 3)
		_, err := r.seal(e, 3)
		r.ok(err)
		if c.inventories(e.ID) {
			out = append(out, e)
		}
	}
	return out
}

// listed is how many replicas stores have listed.
func (r *harness) listed() (n int) {
	for _, s := range r.stores {
		s.with(func() { n += s.listed })
	}
	return n
}

// TestInventory_IsDivided: two controllers compare a store. Each replica is listed for one of them.
func TestInventory_IsDivided(t *testing.T) {
	two(t, harnessOptions{stores: 2, edit: seldom}, func(r *harness, both [2]*running) {
		q := r.queue(2, 1)
		r.sleep(time.Minute)
		before := r.listed()
		for range 50 {
			r.inRangesOf(both[0], q, 1)
		}
		r.sleep(2 * time.Minute)
		all := len(r.ctl.extents.Of(q)) // those that the other controller made, too
		if n := r.listed() - before; n < 2*all || n > 2*all+all/4 {
			t.Errorf("%d extents with 2 replicas were listed %d times, want once for each replica", all, n)
		}
		r.sleep(10 * time.Minute)
		if n := r.listed() - before; n > 2*all+all/4 {
			t.Errorf("they were listed again, %d times in all", n)
		}
	})
}

// TestInventory_TakeOver: the controller of some ranges ends. The other one compares these soon, in full: it finds a
// replica that vanished, and holds nothing for unknown or superfluous.
func TestInventory_TakeOver(t *testing.T) {
	two(t, harnessOptions{stores: 3, edit: seldom}, func(r *harness, both [2]*running) {
		q := r.queue(2, 1)
		some := r.inRangesOf(both[0], q, 40)
		r.sleep(2 * time.Minute) // the other one knows all, and has compared its own
		for _, e := range r.ctl.extents.Of(q) {
			r.whole(e.Extent, 3, 2)
		}
		both[0].end()
		r.ctl = both[1]
		e := some[0]
		s := r.replicas(e)[0]
		s.with(func() { delete(s.replicas, e.ID) })
		took := r.eventually("the other one compares all ranges", time.Minute, func() bool { return r.row(e).Version > 1 })
		if took > 15*time.Second {
			t.Errorf("a vanished replica was found after %s", took)
		}
		r.eventually("all are copied again", 2*time.Minute, func() bool {
			for _, e := range some {
				if len(r.row(e).Holders) != 2 {
					return false
				}
			}
			return true
		})
		r.sleep(10 * time.Minute)
		for _, e := range some {
			r.whole(e, 3, 2)
		}
		if n := len(both[1].strays.mu.byID); n != 0 {
			t.Errorf("%d extents are held for unknown", n)
		}
	})
}

// TestInventory_TakeOverOfAnEmptyBucket: a replica vanishes that was alone in its bucket while nobody compares its
// range.
func TestInventory_TakeOverOfAnEmptyBucket(t *testing.T) {
	two(t, harnessOptions{stores: 3}, func(r *harness, both [2]*running) {
		e := r.inRangesOf(both[0], r.queue(2, 1), 1)[0]
		r.sleep(2 * time.Minute)
		both[0].end()
		r.ctl = both[1]
		s := r.replicas(e)[0]
		s.with(func() { delete(s.replicas, e.ID) })
		r.eventually("it is found", 15*time.Second, func() bool { return r.row(e).Version > 1 })
	})
}

// TestInventory_OrphansAreDivided: each of two controllers knows the orphans of its ranges. When one of them ends, or
// begins, the ranges move, and none is deleted for that.
func TestInventory_OrphansAreDivided(t *testing.T) {
	two(t, harnessOptions{stores: 1, edit: seldom}, func(r *harness, both [2]*running) {
		const many = 60
		for range many {
			r.orphanOn(r.stores[0])
		}
		orphans := func(c *running) float64 { return r.value(c.metrics.orphans) }
		r.eventually("each knows some", 10*time.Minute, func() bool { return orphans(both[0])+orphans(both[1]) == many })
		if orphans(both[0]) == 0 || orphans(both[1]) == 0 {
			t.Errorf("they know of %v and %v", orphans(both[0]), orphans(both[1]))
		}
		both[0].end()
		r.ctl = both[1]
		r.eventually("the other one meets all", 15*time.Second, func() bool {
			both[1].strays.mu.Lock()
			defer both[1].strays.mu.Unlock()
			return len(both[1].strays.mu.byID) == many
		})
		r.eventually("the other one knows all", 10*time.Minute, func() bool { return orphans(both[1]) == many })
		third := r.beside("ctl3")
		defer third.end()
		r.eventually("they share all again", 10*time.Minute, func() bool {
			return orphans(third) > 0 && orphans(both[1]) > 0 && orphans(both[1])+orphans(third) == many
		})
		if n := len(r.stores[0].replicas); n != many {
			t.Errorf("%d are left", n)
		}
	})
}

// TestInventory_SealedByTheOther: a store loses records of an extent that the controller of its range does not know, or
// knows as open, since the other controller made and sealed it a moment ago. It may read the extents again at any time.
func TestInventory_SealedByTheOther(t *testing.T) {
	for _, wait := range []time.Duration{0, reloadOften / 2} {
		for i := range 4 {
			known, gone := i%2 == 0, i/2 == 0
			t.Run(fmt.Sprintf("after=%s/known=%t/gone=%t", wait, known, gone), func(t *testing.T) {
				two(t, harnessOptions{stores: 3}, func(r *harness, both [2]*running) {
					r.sleep(wait)
					e := r.extentOf(both, 1, 0, 5)
					if known {
						r.loads(both[0])
					}
					_, err := r.sealBy(both[1], e, 5)
					r.ok(err)
					r.losesSealed(e, 4, gone)
					r.mended(e, 5, 10*time.Minute)
				})
			})
		}
	}
}

// TestInventory_SealedByTheOtherForIt: the controller that is responsible for the queue and the range holds the extent
// for open when it compares the replica that lost records, since the other one sealed the extent a moment ago.
func TestInventory_SealedByTheOtherForIt(t *testing.T) {
	for _, wait := range []time.Duration{0, 2 * time.Second, 4 * time.Second, 15 * time.Second} {
		for i := range 4 {
			gone, asked := i%2 == 0, i/2 == 0
			t.Run(fmt.Sprintf("after=%s/gone=%t/asked=%t", wait, gone, asked), func(t *testing.T) {
				two(t, harnessOptions{stores: 3}, func(r *harness, both [2]*running) {
					r.sleep(wait)
					e := r.extentOf(both, 0, 0, 5)
					r.sleep(time.Second) // it has looked at the queue
					_, err := r.sealBy(both[1], e, 5)
					r.ok(err)
					r.losesSealed(e, 4, gone)
					if asked {
						r.sleep(6 * time.Second)
						_, err := r.sealBy(both[0], e, 5)
						r.ok(err)
					}
					r.mended(e, 5, 2*time.Minute)
				})
			})
		}
	}
}

// losesSealed has a store of a sealed extent restart without some of its records, or without all of it.
func (r *harness) losesSealed(e core.Extent, records int, all bool) {
	r.t.Helper()
	s := r.replicas(e)[0]
	r.eventually("all stores are told", time.Second, func() bool { return s.has(e.ID).sealed && len(r.row(e).Holders) == 3 })
	r.kill(s.id)
	s.lose(e, records, all)
	r.restart(s)
}

// mended waits until the loss is found and the extent has three whole copies again.
func (r *harness) mended(e core.Extent, l core.Seq, most time.Duration) {
	r.t.Helper()
	r.eventually("the records are missed", most, func() bool { return r.row(e).Version > 1 })
	r.eventually("it is copied again", time.Minute, func() bool { return len(r.row(e).Holders) == 3 })
	r.sleep(time.Second)
	r.whole(e, l, 3)
}

// lose some records of an extent and all that was decided since they came, or all of it.
func (s *fakeStore) lose(e core.Extent, records int, all bool) {
	s.edit(e.ID, func(x *fakeReplica) {
		x.batches, x.committed = x.batches[:len(x.batches)-records], 0
		x.fenced, x.sealed, x.l = false, false, 0
	})
	if all {
		s.with(func() { delete(s.replicas, e.ID) })
	}
}

// extentOf makes an extent of a queue of one of two controllers, in a range of inventories of one of them.
func (r *harness) extentOf(both [2]*running, queueBy, rangeBy, records int) core.Extent {
	r.t.Helper()
	first := r.ctl
	defer func() { r.ctl = first }()
	r.ctl = both[queueBy]
	for {
		q := r.queue(3, 2)
		if of(both, q) != queueBy {
			continue
		}
		if e := r.extent(q, records); both[rangeBy].inventories(e.ID) {
			return e
		}
	}
}

// sealBy asks one of two controllers for the end of an extent.
func (r *harness) sealBy(c *running, e core.Extent, floor core.Seq) (*pb.SealExtentResponse, error) {
	first := r.ctl
	defer func() { r.ctl = first }()
	r.ctl = c
	return r.seal(e, floor)
}
