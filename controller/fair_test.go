package controller

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
			r.ctl.extents.change(e.ID, func(x *extent) { x.told = false })
		}
		r.eventually("the younger one is told", 10*time.Second, func() bool { e, _ := r.ctl.extents.get(younger.ID); return e.told })
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
		var all []extent
		for range 4 {
			all = append(all, extent{ExtentRecord: metadata.ExtentRecord{Extent: core.Extent{ID: core.ExtentID{ID: core.NewID(now)}}}})
			r.sleep(time.Millisecond)
		}
		old, waits, failed, fresh := all[0], all[1], all[2], all[3]
		r.ctl.noteStuck(waits.ID, true)
		r.ctl.mu.stuck[old.ID] = retry{after: now.Add(-time.Second)}
		r.ctl.mu.stuck[failed.ID] = retry{after: now.Add(-time.Minute)}
		got := r.ctl.fairly([]extent{old, waits, failed, fresh}, now)
		if len(got) != 3 || got[0].ID != fresh.ID || got[1].ID != failed.ID || got[2].ID != old.ID {
			t.Errorf("in the order %v", got)
		}
		clear(r.ctl.mu.stuck)
	})
}

// TestExtents_UnfinishedKeepsUp: the indices follow every change of state.
func TestExtents_UnfinishedKeepsUp(t *testing.T) {
	x := newExtents()
	e := manyExtents(x, 1)[0]
	w := writerRun{e.Input, e.InputRun}
	count := func(gone bool) int { return len(x.unfinished(func(is writerRun) bool { return gone && is == w })) }
	check := func(what string, alive, gone int) {
		t.Helper()
		if a, g := count(false), count(true); a != alive || g != gone {
			t.Errorf("%s: %d unfinished, %d when its writer is gone; want %d, %d", what, a, g, alive, gone)
		}
	}
	check("open", 0, 1)
	x.change(e.ID, func(e *extent) { e.state = core.ExtentSealing })
	check("sealing", 1, 1)
	x.change(e.ID, func(e *extent) { e.state = core.ExtentSealed })
	check("not told", 1, 1)
	x.change(e.ID, func(e *extent) { e.told = true })
	check("told", 0, 0)
	if len(x.mu.byWriter) != 0 {
		t.Error("a writer without open extents is remembered")
	}
	e = manyExtents(x, 1)[0]
	x.remove(e.ID)
	check("removed", 0, 0)
	if len(x.mu.byWriter) != 0 {
		t.Error("a writer of a removed extent is remembered")
	}
}

// manyExtents puts open extents of one writer.
func manyExtents(x *extents, n int) (out []core.Extent) {
	run := newRun()
	for range n {
		now := time.Now()
		e := core.Extent{
			ID: core.ExtentID{ID: core.NewID(now)}, Queue: core.QueueID{ID: core.NewID(now)}, Kind: core.KindLog, Durability: core.DurabilityFsync, Input: "in", InputRun: run,
			Token: core.WriterToken{ID: core.NewID(now)}, Replicas: []core.HostID{"s0", "s1", "s2"},
		}
		x.put(extent{ExtentRecord: metadata.ExtentRecord{Extent: e, Wanted: 3, Created: now}, state: core.ExtentOpen})
		out = append(out, e)
	}
	return out
}

// BenchmarkExtents_Unfinished is what a round takes under the lock that publishers wait for, with 100 unfinished extents beside so many open ones.
func BenchmarkExtents_Unfinished(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x := newExtents()
			for _, e := range manyExtents(x, n)[:100] {
				x.change(e.ID, func(e *extent) { e.state = core.ExtentSealing })
			}
			for b.Loop() {
				if got := x.unfinished(func(writerRun) bool { return false }); len(got) != 100 {
					b.Fatal(len(got))
				}
			}
		})
	}
}

// BenchmarkExtents_Scans is what looks at all extents take, and for how long a publisher waits for the lock meanwhile.
func BenchmarkExtents_Scans(b *testing.B) {
	const n = 100_000
	any := func(*extent) bool { return true }
	for name, scan := range map[string]struct {
		state core.ExtentState
		count func(x *extents) int
	}{
		"toRepair":   {core.ExtentSealed, func(x *extents) int { return len(x.toRepair(any)) }},
		"pick":       {core.ExtentSealed, func(x *extents) int { return len(x.pick(any)) }},
		"pickOpen":   {core.ExtentOpen, func(x *extents) int { return len(x.pickOpen(any)) }},
		"withoutEnd": {core.ExtentOpen, func(x *extents) int { return len(x.withoutEnd()) }},
	} {
		b.Run(name, func(b *testing.B) {
			x := newExtents()
			all := manyExtents(x, n)
			for _, e := range all {
				x.change(e.ID, func(e *extent) { e.state = scan.state })
			}
			var stop atomic.Bool
			var waits []time.Duration
			var publisher sync.WaitGroup
			publisher.Go(func() {
				for i := 0; !stop.Load(); i++ {
					began := time.Now()
					x.get(all[i%n].ID)
					waits = append(waits, time.Since(began))
				}
			})
			for b.Loop() {
				if got := scan.count(x); got != n {
					b.Fatal(got)
				}
			}
			stop.Store(true)
			publisher.Wait()
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)*999/1000].Microseconds()), "wait-p999-µs")
			b.ReportMetric(float64(waits[len(waits)-1].Microseconds()), "wait-max-µs")
		})
	}
}
