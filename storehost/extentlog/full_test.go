package extentlog

import (
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// appendWithin is the answer to an append, which comes within so long.
func appendWithin(t *testing.T, e *Engine, x core.Extent, batch []byte, most time.Duration) error {
	t.Helper()
	answer := make(chan error, 1)
	e.Append(x.ID, batch, 0, func(_ core.Seq, err error) { answer <- err })
	select {
	case err := <-answer:
		return err
	case <-time.After(most):
		t.Fatalf("an append of %d bytes has no answer after %s", len(batch), most)
		return nil
	}
}

// TestFull_SegmentForALargeBatch: the disk has less than a new segment leaves free, and more than an append does. So a
// batch is stored that is larger than all segments of a young ring.
func TestFull_SegmentForALargeBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := told{vfs.NewMem(), new(atomic.Uint64)}
		disk.free.Store(1 << 29)
		e := newEngine(t, "store", disk)
		x, h := newExtent(), wire.BatchHeader{}
		must(t, e.Open(x))
		for range 6 {
			appendBatch(t, e, x, nextBatch(t, &h, 50<<10))
		}
		disk.free.Store(200 << 20)
		time.Sleep(2 * time.Second)
		must(t, appendWithin(t, e, x, nextBatch(t, &h, 400<<10), 5*time.Second))
		must(t, appendWithin(t, e, x, nextBatch(t, &h, 900<<10), 5*time.Second))
		if s, err := e.Fence(x, 1); err != nil || s.Last != h.Last() {
			t.Errorf("fence: %+v, %v", s, err)
		}
	})
}

// TestFull_NoSegmentForALargeBatch: there is no room at all for the segment that a batch needs. The log does not wait
// for it for ever.
func TestFull_NoSegmentForALargeBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		e := turning(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if full.Load() && op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".seg.new") {
				return syscall.ENOSPC
			}
			return nil
		})))
		x, h := newExtent(), wire.BatchHeader{}
		must(t, e.Open(x))
		appendBatch(t, e, x, nextBatch(t, &h, 10))
		full.Store(true)
		if err := appendWithin(t, e, x, nextBatch(t, &h, 100<<10), 5*time.Second); core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("got %v, want %q", err, core.CodeUnavailable)
		}
	})
}

// TestFull_NoDescriptorsForAWhile: appends wait for them, and none is refused.
func TestFull_NoDescriptorsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none atomic.Bool
		e := turning(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if none.Load() && op.Kind == errorfs.OpCreate && path.Base(op.Path) != "probe" {
				return syscall.EMFILE
			}
			return nil
		})))
		x, h := newExtent(), wire.BatchHeader{}
		must(t, e.Open(x))
		none.Store(true)
		back := time.AfterFunc(600*time.Millisecond, func() { none.Store(false) })
		defer back.Stop()
		for range 20 {
			must(t, appendWithin(t, e, x, nextBatch(t, &h, 10<<10), 5*time.Second))
		}
		must(t, appendWithin(t, e, x, nextBatch(t, &h, 100<<10), 5*time.Second))
	})
}

// TestFull_OddSegmentsGo: batches, each larger than the one before, do not make the ring larger for ever.
func TestFull_OddSegmentsGo(t *testing.T) {
	e := turning(t, vfs.NewMem())
	x, h := newExtent(), wire.BatchHeader{}
	must(t, e.Open(x))
	largest := 0
	for size := 20 << 10; size < 300<<10; size += 8 << 10 {
		appendBatch(t, e, x, nextBatch(t, &h, size))
		largest = size
	}
	drainAll(t, e)
	if _, all := e.journal.ring.Room(); all > e.journal.keeper.most+int64(largest)+64<<10 {
		t.Errorf("the ring has %d bytes, and may have %d, and one segment of %d", all, e.journal.keeper.most, largest)
	}
	names, err := e.fs.List("store/ring")
	must(t, err)
	free, all := e.journal.ring.Room()
	if len(names) > 8 {
		t.Errorf("%d files for a ring of %d bytes, of which %d are free", len(names), all, free)
	}
	if v, err := e.Verify(t.Context(), x.ID); err != nil || !v.Sound {
		t.Errorf("%+v, %v", v, err)
	}
	must(t, e.Close())
	e = turning(t, e.fs)
	if v, err := e.Verify(t.Context(), x.ID); err != nil || !v.Sound {
		t.Errorf("opened again: %+v, %v", v, err)
	}
}
