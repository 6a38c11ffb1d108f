package extentlog

import (
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

// iterators is how many of those that are kept are open.
func (s *cursors) iterators() (open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		if c.iter != nil {
			open++
		}
	}
	return open
}

// TestCursors_InsideABatch: an iterator that looked for a batch which begins before looks into all tables of the
// extent, however far ahead.
func TestCursors_InsideABatch(t *testing.T) {
	e := newEngine(t, "store", vfs.NewMem())
	x := newExtent()
	if err := e.Open(x); err != nil {
		t.Fatal(err)
	}
	var h wire.BatchHeader
	const batches, records = 10, 4
	for range batches {
		appendBatch(t, e, x, recordsBatch(t, &h, records, 10<<10))
	}
	b, err := e.Read(x.ID, 2, h.Last(), 70<<10)
	if err != nil || len(b) == 0 {
		t.Fatalf("%d bytes from inside a batch: %v", len(b), err)
	}
	if n := e.cursors.iterators(); n != 0 {
		t.Errorf("after a read from inside a batch: %d iterators are kept, want none", n)
	}
	for next := core.Seq(records + 1); next <= h.Last(); {
		_, next = readPiece(t, e, x, next, h.Last(), 50<<10)
	}
}

// appendBatches of one record each, of these sizes, and answers the last seq.
func appendBatches(t testing.TB, e *Engine, x core.Extent, n, size int) core.Seq {
	t.Helper()
	var h wire.BatchHeader
	for range n {
		appendBatch(t, e, x, nextBatch(t, &h, size))
	}
	return h.Last()
}

// TestCursors_LargeAfterSmall: what all look ahead counts by the sizes there, not by the mean of an extent that began
// with small records.
func TestCursors_LargeAfterSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, "store", vfs.NewMem())
		x := newExtent()
		if err := e.Open(x); err != nil {
			t.Fatal(err)
		}
		const small, large, size = 600, 60, 200 << 10
		var h wire.BatchHeader
		for i := range small + large {
			bytes := 10
			if i >= small {
				bytes = size
			}
			appendBatch(t, e, x, nextBatch(t, &h, bytes))
		}
		for next := core.Seq(small + 1); next <= h.Last(); {
			_, next = readPiece(t, e, x, next, h.Last(), 400<<10)
			if c := e.cursors.open[place{e.extent(x.ID), next}]; c != nil && c.iter != nil && c.ahead < int(c.left())*size {
				t.Fatalf("a cursor at %d looks %d batches of %d bytes ahead, and counts as %d bytes", next, c.left(), size, c.ahead)
			}
		}
	})
}

// TestRead_WhileASealCutsOff: a reader that does not know yet where the extent ends now is no reason to take it for
// damaged.
func TestRead_WhileASealCutsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Pointer[chan struct{}]
		disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			switch wait := held.Load(); op.Kind {
			case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
				if wait != nil {
					<-*wait
				}
			}
			return nil
		}))
		e := newEngine(t, "store", disk)
		x := newExtent()
		if err := e.Open(x); err != nil {
			t.Fatal(err)
		}
		last := appendBatches(t, e, x, 12, 1000)
		if _, err := e.Fence(x, 1); err != nil {
			t.Fatal(err)
		}
		const end = 5
		at, err := e.batchAt(e.extent(x.ID), end)
		if err != nil {
			t.Fatal(err)
		}
		wait := make(chan struct{})
		release := sync.OnceFunc(func() { held.Store(nil); close(wait) })
		defer release()
		held.Store(&wait)
		sealed := make(chan error, 1)
		go func() { sealed <- e.Seal(x.ID, end, at.Checksum, 1) }()
		synctest.Wait()
		for from := core.Seq(1); from <= last; from++ {
			if _, err := e.Read(x.ID, from, last, 1<<20); err != nil {
				t.Fatalf("from %d, while a seal at %d is being written: %v", from, end, err)
			}
		}
		release()
		if err := <-sealed; err != nil {
			t.Fatal(err)
		}
		if s, err := e.State(x.ID); err != nil || s.Damaged || s.Last != end {
			t.Errorf("afterwards: %+v, %v", s, err)
		}
	})
}

// TestEngine_RemovalsWhileItCloses: a database closes only when nobody uses it.
func TestEngine_RemovalsWhileItCloses(t *testing.T) {
	for range 30 {
		e, err := Open("store", Options{Store: "s1", FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		var all []core.Extent
		for range 5 {
			x := newExtent()
			if err := e.Open(x); err != nil {
				t.Fatal(err)
			}
			appendBatches(t, e, x, 1, exciseAbove)
			all = append(all, x)
		}
		var removals sync.WaitGroup
		for _, x := range all {
			removals.Go(func() { _ = removeTold(e, x, 1) })
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		removals.Wait()
	}
}

// TestCursors_Age: one that is in use whenever housekeep looks grows no older than others.
func TestCursors_Age(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, "store", vfs.NewMem())
		all, heads := backlog(t, e, 1, 20, largeBatches)
		x, last := all[0], heads[0].Last()
		next := core.Seq(1)
		for range 4 { // until it looks some pieces ahead
			_, next = readPiece(t, e, x, next, last, 64<<10)
		}
		at := place{e.extent(x.ID), next}
		c := e.cursors.take(at)
		if c == nil || c.iter == nil {
			t.Fatal("no cursor is kept")
		}
		time.Sleep(3 * cursorAge)
		e.cursors.keep(c)
		readPiece(t, e, x, next, last, 64<<10)
		if n := e.cursors.iterators(); n != 0 {
			t.Errorf("a cursor of %s goes on", time.Since(c.opened))
		}
	})
}
