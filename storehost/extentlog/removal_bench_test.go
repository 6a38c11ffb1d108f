package extentlog_test

import (
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
)

// BenchmarkAppend_BesideRemovals appends 16 KiB every 2 ms while nothing else happens, and while extents are removed,
// two a second, whose batches are in 64 tables each, with those of others. It reports how long appends and removals
// took. Appends wait while a removal cuts its range out of these tables.
func BenchmarkAppend_BesideRemovals(b *testing.B) {
	const extents, removals, size = 16, 4, 64 << 20
	for b.Loop() {
		l, err := extentlog.Open(b.TempDir(), extentlog.Options{Store: "s1"})
		if err != nil {
			b.Fatal(err)
		}
		full := fillExtents(b, l, extents, size)[:removals]
		appendFor(b, l, 2*time.Second) // until the last tables are written
		alone := appendFor(b, l, removals*time.Second/2)
		removed := make(chan time.Duration, removals)
		go func() {
			tick := time.NewTicker(time.Second / 2)
			defer tick.Stop()
			for _, id := range full {
				began := time.Now()
				if err := l.Remove(id, 1); err != nil {
					b.Error(err)
				}
				removed <- time.Since(began)
				<-tick.C
			}
		}()
		beside := appendFor(b, l, removals*time.Second/2)
		var slowest time.Duration
		for range removals {
			slowest = max(slowest, <-removed)
		}
		b.ReportMetric(slowest.Seconds()*1000, "removal-max-ms")
		for what, took := range map[string][]time.Duration{"alone": alone, "beside": beside} {
			slices.Sort(took)
			b.ReportMetric(took[len(took)*99/100].Seconds()*1000, what+"-p99-ms")
			b.ReportMetric(took[len(took)-1].Seconds()*1000, what+"-max-ms")
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// fillExtents makes extents of a size that may be removed, filled in turn.
func fillExtents(b *testing.B, l extentlog.Log, extents, size int) (ids []core.ExtentID) {
	all, writers := make([]core.Extent, extents), make([]extentlogtest.Writer, extents)
	for i := range all {
		all[i] = extentlogtest.Extent()
		if err := l.Open(all[i]); err != nil {
			b.Fatal(err)
		}
	}
	for range size >> 20 {
		for i := range all {
			if _, err := extentlogtest.Append(l, all[i].ID, writers[i].Batch(1000, 1024), 0); err != nil {
				b.Fatal(err)
			}
		}
	}
	for i, e := range all {
		if _, err := l.Fence(e, 0); err != nil {
			b.Fatal(err)
		}
		if err := l.Seal(e.ID, writers[i].Last, writers[i].Checksum, 1); err != nil {
			b.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

// appendFor appends to a new extent at a steady pace, and answers how long each append took.
func appendFor(b *testing.B, l extentlog.Log, d time.Duration) (took []time.Duration) {
	e, w := extentlogtest.Extent(), new(extentlogtest.Writer)
	if err := l.Open(e); err != nil {
		b.Fatal(err)
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
		began := time.Now()
		if _, err := extentlogtest.Append(l, e.ID, w.Batch(16, 1000), 0); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	return took
}
