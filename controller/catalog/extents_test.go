package catalog

import (
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestExtents_UnfinishedKeepsUp: rounds of seals hear of every change, once.
func TestExtents_UnfinishedKeepsUp(t *testing.T) {
	x := NewExtents()
	e := manyExtents(x, 1)[0]
	w := HostRun{e.Input, e.InputRun}
	check := func(what string, gone bool, want int) {
		t.Helper()
		if got := x.TakeUnfinished(func(is HostRun) bool { return gone && is == w }); len(got) != want {
			t.Errorf("%s: %d extents are news, want %d", what, len(got), want)
		}
	}
	change := func(f func(*Extent)) { t.Helper(); x.Change(e.ID, f) }
	check("open", false, 0)
	check("its writer is gone", true, 1)
	check("and stays gone", true, 0)
	x.RenewUnfinished()
	check("all are asked for, its writer is there", false, 0)
	check("its writer is gone again", true, 1)
	x.RenewUnfinished()
	check("all are asked for, its writer is gone", true, 1)
	change(func(e *Extent) { e.Rate = 1 })
	check("it changed while its writer was gone", true, 1)
	check("its writer is there after all", false, 0)
	check("its writer is gone again", true, 1)
	change(func(e *Extent) { e.State = core.ExtentSealing })
	check("sealing", true, 1)
	check("as before", true, 0)
	x.RenewUnfinished()
	check("all are asked for, it is sealing", true, 1)
	change(func(e *Extent) { e.State = core.ExtentSealed })
	check("not told", true, 1)
	change(func(e *Extent) { e.Told = true })
	check("told", true, 1)
	change(func(e *Extent) { e.Rate = 2 })
	check("it changed afterwards", true, 0)
	change(func(e *Extent) { e.Told = false })
	check("not told any more", true, 1)
	x.Remove(e.ID)
	check("removed", true, 1)
	if len(x.mu.byWriter)+len(x.mu.gone) != 0 {
		t.Error("a writer without open extents is remembered")
	}
	e = manyExtents(x, 1)[0]
	w = HostRun{e.Input, e.InputRun}
	check("another one, whose writer is gone", true, 1)
	x.Remove(e.ID)
	check("removed while it was open", true, 0)
	if len(x.mu.byWriter)+len(x.mu.gone) != 0 {
		t.Error("a writer of a removed extent is remembered")
	}
}

// manyExtents puts open extents of one writer.
func manyExtents(x *Extents, n int) (out []core.Extent) {
	run := core.RunID{ID: core.NewID(time.Now())}
	for range n {
		now := time.Now()
		e := core.Extent{
			ID: core.ExtentID{ID: core.NewID(now)}, Queue: core.QueueID{ID: core.NewID(now)}, Kind: core.KindLog, Durability: core.DurabilityFsync, Input: "in", InputRun: run,
			Token: core.WriterToken{ID: core.NewID(now)}, Replicas: []core.HostID{"s0", "s1", "s2"},
		}
		x.Put(Extent{ExtentRecord: metadata.ExtentRecord{Extent: e, Wanted: 3, Created: now}, State: core.ExtentOpen})
		out = append(out, e)
	}
	return out
}

// BenchmarkExtents_Unfinished is what a round takes under the lock that publishers wait for, with so many extents, of
// which every tenth is unfinished.
func BenchmarkExtents_Unfinished(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x := NewExtents()
			all := manyExtents(x, n)
			for _, e := range all[:n/10] {
				x.Change(e.ID, func(e *Extent) { e.State = core.ExtentSealing })
			}
			x.TakeUnfinished(func(HostRun) bool { return false })
			for b.Loop() {
				x.Change(all[0].ID, func(e *Extent) { e.Rate++ })
				if got := x.TakeUnfinished(func(HostRun) bool { return false }); len(got) != 1 {
					b.Fatal(len(got))
				}
			}
		})
	}
}

// BenchmarkExtents_Scans is what looks at all extents take, and for how long a publisher waits for the lock meanwhile.
func BenchmarkExtents_Scans(b *testing.B) {
	const n = 100_000
	any := func(*Extent) bool { return true }
	for name, scan := range map[string]struct {
		state core.ExtentState
		count func(x *Extents) int
	}{
		"all":        {core.ExtentSealed, func(x *Extents) int { return count(x.All(any)) }},
		"open":       {core.ExtentOpen, func(x *Extents) int { return count(x.Open(any)) }},
		"withoutEnd": {core.ExtentOpen, func(x *Extents) int { return count(x.WithoutEnd()) }},
	} {
		b.Run(name, func(b *testing.B) {
			x := NewExtents()
			all := manyExtents(x, n)
			for _, e := range all {
				x.Change(e.ID, func(e *Extent) { e.State = scan.state })
			}
			var stop atomic.Bool
			var waits []time.Duration
			var publisher sync.WaitGroup
			publisher.Go(func() {
				for i := 0; !stop.Load(); i++ {
					began := time.Now()
					x.Get(all[i%n].ID)
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

func count[T any](all iter.Seq[T]) (n int) {
	for range all {
		n++
	}
	return n
}
