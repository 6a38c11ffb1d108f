package extentlog

import (
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// countSyncs is a disk that counts the syncs of its logs, each of which takes a while.
func countSyncs(took time.Duration) (vfs.FS, *atomic.Int64) {
	var syncs atomic.Int64
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if path.Ext(op.Path) == ".seg" {
				syncs.Add(1)
				time.Sleep(took)
			}
		}
		return nil
	})), &syncs
}

// sealMany fences, and returns a function that seals, so many extents of two batches each; every other one at the end
// of the first.
func sealMany(tb testing.TB, e *Engine, many int) (seal func()) {
	tb.Helper()
	type end struct {
		id  core.ExtentID
		l   core.Seq
		sum uint32
	}
	ends := make([]end, many)
	for i := range ends {
		x, h := newExtent(), wire.BatchHeader{}
		if err := e.Open(x); err != nil {
			tb.Fatal(err)
		}
		appendBatch(tb, e, x, nextBatch(tb, &h, 100))
		ends[i] = end{x.ID, h.Base, h.Checksum}
		appendBatch(tb, e, x, nextBatch(tb, &h, 100))
		if i%2 == 0 {
			ends[i].l, ends[i].sum = h.Base, h.Checksum
		}
		if _, err := e.Fence(x, 1); err != nil {
			tb.Fatal(err)
		}
	}
	return func() {
		var wg sync.WaitGroup
		for _, x := range ends {
			wg.Go(func() {
				if err := e.Seal(x.id, x.l, x.sum, 1); err != nil {
					tb.Error(err)
				}
				if s, err := e.State(x.id); err != nil || !s.Sealed || s.L != x.l || s.Last != x.l || s.Checksum != x.sum {
					tb.Errorf("sealed at %d: %+v, %v", x.l, s, err)
				}
			})
		}
		wg.Wait()
	}
}

// TestSeal_ManyInOneRound: seals that wait for the disk share a sync.
func TestSeal_ManyInOneRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, syncs := countSyncs(5 * time.Millisecond)
		e := newEngine(t, "store", disk)
		seal := sealMany(t, e, 100)
		before := syncs.Load()
		seal()
		if n := syncs.Load() - before; n > 5 {
			t.Errorf("100 seals at once took %d syncs, want a few", n)
		}
	})
}

// BenchmarkSeals measures 100 seals at once on a disk whose syncs take 2 ms.
func BenchmarkSeals(b *testing.B) {
	disk, syncs := countSyncs(2 * time.Millisecond)
	e, err := Open("store", Options{Store: "s1", FS: disk})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	var spent int64
	for b.Loop() {
		b.StopTimer()
		seal := sealMany(b, e, 100)
		before := syncs.Load()
		b.StartTimer()
		seal()
		spent += syncs.Load() - before
	}
	b.ReportMetric(float64(spent)/float64(b.N), "syncs/op")
}
