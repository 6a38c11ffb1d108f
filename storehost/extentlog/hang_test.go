package extentlog

import (
	"errors"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// hanging is a disk whose logs' syncs do not return while it hangs.
func hanging() (disk vfs.FS, hang, release func()) {
	var gate atomic.Pointer[chan struct{}]
	disk = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if c := gate.Load(); c != nil && path.Ext(op.Path) == ".seg" {
				<-*c
			}
		}
		return nil
	}))
	return disk, func() { c := make(chan struct{}); gate.Store(&c) }, func() { close(*gate.Swap(nil)) }
}

// TestHang_IsSeenAndNobodyPilesUp: a disk that answers nothing is no fast one, calls are refused at once, and those
// that wait end.
func TestHang_IsSeenAndNobodyPilesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, hang, release := hanging()
		e := newEngine(t, "store", disk)
		x := newExtent()
		must(t, e.Open(x))
		if v := e.Vitals(); v.Hangs != 0 || v.Refuses {
			t.Fatalf("idle: %+v, want no hang", v)
		}
		hang()
		answered := make(chan error, 1)
		e.Append(x.ID, nextBatch(t, new(wire.BatchHeader), 100), 0, func(_ core.Seq, err error) { answered <- err })
		time.Sleep(HangsAt - time.Millisecond)
		if v := e.Vitals(); v.Refuses || v.SyncP99 < HangsAt/2 {
			t.Errorf("just before the bound: %+v, want no refusal, and a p99 that tells", v)
		}
		var early sync.WaitGroup
		began := time.Now()
		early.Go(func() {
			if s, err := e.Fence(newExtent(), 0); core.CodeOf(err) != core.CodeDeadline || s.Fenced {
				t.Errorf("fence that waited: %+v, %v, want %q", s, err, core.CodeDeadline)
			}
		})
		time.Sleep(2 * time.Millisecond)
		if v := e.Vitals(); !v.Refuses || v.Hangs < HangsAt {
			t.Errorf("at the bound: %+v, want a refusal", v)
		}
		for range 1000 {
			if _, err := e.Fence(x, 0); core.CodeOf(err) != core.CodeUnavailable {
				t.Fatalf("fence on a hung disk: %v, want %q", err, core.CodeUnavailable)
			}
		}
		early.Wait()
		if took := time.Since(began); took != doPatience {
			t.Errorf("a fence waited for %s, want %s", took, doPatience)
		}
		release()
		must(t, <-answered)
		synctest.Wait()
		if v := e.Vitals(); v.Hangs != 0 || v.Refuses {
			t.Errorf("afterwards: %+v, want no hang", v)
		}
		if s, err := e.Fence(x, 0); err != nil || s.Last != 1 {
			t.Errorf("fence afterwards: %+v, %v", s, err)
		}
	})
}

// hangingReads is a disk whose tables are not read while it hangs.
func hangingReads() (disk vfs.FS, hang, release func()) {
	var gate atomic.Pointer[chan struct{}]
	disk = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if c := gate.Load(); c != nil && op.Kind == errorfs.OpFileReadAt && path.Ext(op.Path) == ".sst" {
			<-*c
		}
		return nil
	}))
	return disk, func() { c := make(chan struct{}); gate.Store(&c) }, func() { close(*gate.Swap(nil)) }
}

// inTables is an extent of ten batches, fenced, all of which are in tables and not in the cache. It answers the
// checksum at each seq, too.
func inTables(t *testing.T, e *Engine) (x core.Extent, checksums []uint32) {
	t.Helper()
	x = newExtent()
	must(t, e.Open(x))
	var h wire.BatchHeader
	checksums = []uint32{0}
	for range 10 {
		answered := make(chan error, 1)
		e.Append(x.ID, nextBatch(t, &h, 100<<10), 0, func(_ core.Seq, err error) { answered <- err })
		must(t, <-answered)
		checksums = append(checksums, h.Checksum)
	}
	_, err := e.Fence(x, 0)
	must(t, err)
	drainAll(t, e)
	return x, checksums
}

// TestHang_OfAReadWhileStaging: a seal reads batches on the log's own goroutine, and all that waits behind it counts as
// hung.
func TestHang_OfAReadWhileStaging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, hang, release := hangingReads()
		e := newEngine(t, "store", disk)
		x, checksums := inTables(t, e)
		hang()
		sealed := make(chan error, 1)
		go func() { sealed <- e.Seal(x.ID, 5, checksums[5], 1) }()
		time.Sleep(HangsAt)
		synctest.Wait()
		if v := e.Vitals(); !v.Refuses || v.Hangs < HangsAt || v.SyncP99 < HangsAt {
			t.Errorf("while the seal reads: %+v, want a refusal", v)
		}
		if err := e.Open(newExtent()); core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("open meanwhile: %v, want %q", err, core.CodeUnavailable)
		}
		release()
		must(t, <-sealed)
		synctest.Wait()
		if v := e.Vitals(); v.Hangs != 0 || v.Refuses {
			t.Errorf("afterwards: %+v, want no hang", v)
		}
	})
}

// TestHang_OfARemoval: a removal whose caller has left is finished all the same, and the extent may come back
// afterwards.
func TestHang_OfARemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, hang, release := hanging()
		e := newEngine(t, "store", disk)
		x, checksums := inTables(t, e)
		must(t, e.Seal(x.ID, 10, checksums[10], 1))
		hang()
		if err := e.Remove(x.ID, 1); core.CodeOf(err) != core.CodeDeadline {
			t.Errorf("remove on a hung disk: %v, want %q", err, core.CodeDeadline)
		}
		release()
		synctest.Wait()
		if tables, err := e.db.SSTables(pebble.WithKeyRangeFilter(extentKey(prefixBatch, x.ID), afterExtent(prefixBatch, x.ID))); err != nil || len(slices.Concat(tables...)) > 0 {
			t.Errorf("the range is not cut out: %v, %v", tables, err)
		}
		must(t, e.Remove(x.ID, 1))
		if e.extent(x.ID) != nil {
			t.Error("the id is still taken")
		}
		if _, err := e.Fence(x, 2); err != nil {
			t.Errorf("fence of a new replica: %v", err)
		}
	})
}

// TestHang_OfReads: callers who try again do not pile up, and the store says that its disk hangs.
func TestHang_OfReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, hang, release := hangingReads()
		e := newEngine(t, "store", disk)
		x, _ := inTables(t, e)
		hang()
		time.Sleep(time.Minute) // idle reads are none that hang
		var reads sync.WaitGroup
		for range maxStuckReads {
			reads.Go(func() {
				if _, err := e.Read(x.ID, 1, 10, 1<<20); err != nil {
					t.Errorf("read that waits: %v", err)
				}
			})
		}
		synctest.Wait()
		if v := e.Vitals(); v.Hangs != 0 || v.Refuses {
			t.Errorf("at first: %+v, want no hang", v)
		}
		time.Sleep(HangsAt)
		if v := e.Vitals(); v.Hangs < HangsAt || !v.Refuses {
			t.Errorf("later: %+v, want a hang", v)
		}
		late := make(chan error, 2)
		go func() { _, err := e.Read(x.ID, 1, 10, 1<<20); late <- err }()
		go func() { _, err := e.Seek(x.ID, 0); late <- err }()
		synctest.Wait()
		for range cap(late) {
			select {
			case err := <-late:
				if core.CodeOf(err) != core.CodeUnavailable {
					t.Errorf("one more: %v, want %q", err, core.CodeUnavailable)
				}
			default:
				t.Error("one more waits, too")
			}
		}
		release()
		reads.Wait()
		synctest.Wait()
		if _, err := e.Seek(x.ID, 0); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// TestHang_OfClose: Close of a log that works does not wait for ever for a disk that hangs. The append under way is
// answered when its sync has ended, and the fence behind it before.
func TestHang_OfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, hang, release := hanging()
		e := newEngine(t, "store", disk)
		x := newExtent()
		must(t, e.Open(x))
		hang()
		appended, fenced := make(chan error, 1), make(chan error, 1)
		e.Append(x.ID, nextBatch(t, new(wire.BatchHeader), 100), 0, func(_ core.Seq, err error) { appended <- err })
		go func() {
			_, err := e.Fence(x, 0)
			fenced <- err
		}()
		synctest.Wait()
		began := time.Now()
		if err := e.Close(); !errors.Is(err, ErrHangs) {
			t.Errorf("close: %v, want %v", err, ErrHangs)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %s, want a minute at most", took)
		}
		if err := <-fenced; err == nil {
			t.Error("the fence was answered as if the disk had")
		}
		release()
		<-appended
		e.tasks.Wait()
		if !e.closeFailed() {
			t.Error("the database does not close after the hang")
		}
	})
}
