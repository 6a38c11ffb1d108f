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

// TestExtents_UnfinishedKeepsUp: the indices follow every change of state.
func TestExtents_UnfinishedKeepsUp(t *testing.T) {
	x := NewExtents()
	e := manyExtents(x, 1)[0]
	w := HostRun{e.Input, e.InputRun}
	count := func(gone bool) int {
		return len(x.Unfinished(func(is HostRun) bool { return gone && is == w }))
	}
	check := func(what string, alive, gone int) {
		t.Helper()
		if a, g := count(false), count(true); a != alive || g != gone {
			t.Errorf("%s: %d unfinished, %d when its writer is gone; want %d, %d", what, a, g, alive, gone)
		}
	}
	check("open", 0, 1)
	x.Change(e.ID, func(e *Extent) { e.State = core.ExtentSealing })
	check("sealing", 1, 1)
	x.Change(e.ID, func(e *Extent) { e.State = core.ExtentSealed })
	check("not told", 1, 1)
	x.Change(e.ID, func(e *Extent) { e.Told = true })
	check("told", 0, 0)
	if len(x.mu.byWriter) != 0 {
		t.Error("a writer without open extents is remembered")
	}
	e = manyExtents(x, 1)[0]
	x.Remove(e.ID)
	check("removed", 0, 0)
	if len(x.mu.byWriter) != 0 {
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

// BenchmarkExtents_Unfinished is what a round takes under the lock that publishers wait for, with 100 unfinished extents beside so many open ones.
func BenchmarkExtents_Unfinished(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x := NewExtents()
			for _, e := range manyExtents(x, n)[:100] {
				x.Change(e.ID, func(e *Extent) { e.State = core.ExtentSealing })
			}
			for b.Loop() {
				if got := x.Unfinished(func(HostRun) bool { return false }); len(got) != 100 {
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

func count(all iter.Seq[Extent]) (n int) {
	for range all {
		n++
	}
	return n
}
