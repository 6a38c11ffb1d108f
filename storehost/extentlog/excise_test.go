package extentlog

import (
	"errors"
	"log/slog"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// inOneTable makes extents of batches of these sizes, all in one table, in the order of their ids.
func inOneTable(t *testing.T, e *Engine, sizes ...[]int) (all []core.Extent, batches [][][]byte) {
	t.Helper()
	for _, of := range sizes {
		time.Sleep(2 * time.Millisecond) // ids are in the order of time
		x, h, own := newExtent(), wire.BatchHeader{}, [][]byte(nil)
		must(t, e.Open(x))
		for _, size := range of {
			own = append(own, nextBatch(t, &h, size))
			appendBatch(t, e, x, own[len(own)-1])
		}
		all, batches = append(all, x), append(batches, own)
	}
	drainAll(t, e)
	return all, batches
}

func whole(t *testing.T, e *Engine, all ...core.Extent) {
	t.Helper()
	for _, x := range all {
		if v, err := e.Verify(t.Context(), x.ID); err != nil || !v.Sound {
			t.Errorf("extent %s is %+v, %v", x.ID, v, err)
		}
	}
}

// TestExcise_DamageBelowADeletion: a block of deleted batches cannot be read. It lies just before a range that is cut
// out. Readers of the database do not look at it, because of the deletion, but Pebble does when it cuts.
func TestExcise_DamageBelowADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := newEngine(t, "store", disk)
		block := 33 << 10
		x, batches := inOneTable(t, e, []int{block, block}, []int{block + 1}, []int{block, block}, []int{block})
		must(t, removeTold(e, x[1], 1)) // small: deleted, and cut out later
		flipIn(t, disk, batches[1][0])
		if err := removeTold(e, x[2], 1); core.CodeOf(err) != core.CodeInternal {
			t.Errorf("remove: %v, want to hear that the space stays taken", err)
		}
		must(t, e.refusing())
		whole(t, e, x[0], x[3])
		time.Sleep(2 * cutAgainMost)
		must(t, e.refusing())
		whole(t, e, x[0], x[3])
	})
}

// besideDeletions puts batches of extents into one more table, together with the deletion of another extent, and flips
// a bit of what that table says of deletions.
func besideDeletions(t *testing.T, e *Engine, disk vfs.FS, gone core.Extent, all ...core.Extent) {
	t.Helper()
	b := e.db.NewBatch()
	must(t, b.DeleteRange(extentKey(prefixBatch, gone.ID), afterExtent(prefixBatch, gone.ID), nil))
	for _, x := range all {
		it, err := e.batches(&extent{id: x.ID})
		must(t, err)
		for ok := it.First(); ok; ok = it.Next() {
			must(t, b.Set(it.Key(), it.Value(), nil))
		}
		must(t, it.Close())
	}
	must(t, e.db.Apply(b, pebble.NoSync))
	must(t, e.db.Flush())
	names, err := disk.List("store/log")
	must(t, err)
	for _, name := range names {
		if path.Ext(name) != ".sst" {
			continue
		}
		r, err := openTable(disk, disk.PathJoin("store/log", name), e.readTables)
		must(t, err)
		l, err := r.Layout()
		must(t, errors.Join(err, r.Close()))
		if l.RangeDel.Length == 0 || len(l.Data) < 3 {
			continue
		}
		f, err := disk.OpenReadWrite(disk.PathJoin("store/log", name), vfs.WriteCategoryUnspecified)
		must(t, err)
		was := make([]byte, 1)
		_, err = f.ReadAt(was, int64(l.RangeDel.Offset))
		must(t, err)
		_, err = f.WriteAt([]byte{was[0] ^ 1}, int64(l.RangeDel.Offset))
		must(t, errors.Join(err, f.Close()))
		return
	}
	t.Fatal("no table has batches and deletions")
}

// TestExcise_DamagedDeletions: what a table says of deletions is damaged, and Pebble reads that first. The range stays,
// and the log does not fail whenever it is tried again.
func TestExcise_DamagedDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := newEngine(t, "store", disk)
		block := 33 << 10
		x, _ := inOneTable(t, e, []int{100}, []int{block, block}, []int{block, block, block}, []int{block})
		must(t, removeTold(e, x[0], 1))
		besideDeletions(t, e, disk, x[0], x[1:]...)
		if err := removeTold(e, x[2], 1); core.CodeOf(err) != core.CodeInternal {
			t.Errorf("remove: %v, want to hear that the space stays taken", err)
		}
		time.Sleep(2 * cutAgainMost)
		must(t, e.refusing())
	})
}

// TestExcise_DamageElsewhere: a virtual table ends at a range, and the blocks behind its end, which nobody reads, are
// damaged. The range is cut out.
func TestExcise_DamageElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := newEngine(t, "store", disk)
		block := 33 << 10
		x, batches := inOneTable(t, e, []int{block, block}, []int{block, block, block + 1}, []int{block, block, block}, []int{block})
		must(t, removeTold(e, x[1], 1)) // cut out
		flipIn(t, disk, batches[1][2])
		must(t, removeTold(e, x[2], 1))
		if n := e.Vitals().UncutExtents; n > 0 {
			t.Errorf("%d extents are not cut out", n)
		}
		whole(t, e, x[0], x[3])
	})
}

// TestExcise_BadSectorElsewhere: reads of a table that goes beyond no range that is cut out fail all the time. The log
// goes on.
func TestExcise_BadSectorElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bad atomic.Pointer[string]
		disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if name := bad.Load(); name != nil && op.Kind == errorfs.OpFileReadAt && path.Base(op.Path) == *name {
				return syscall.EIO
			}
			return nil
		}))
		e := newEngine(t, "store", disk)
		block := 33 << 10
		apart, _ := inOneTable(t, e, []int{block, block, block})
		tables, err := e.db.SSTables(pebble.WithKeyRangeFilter(extentKey(prefixBatch, apart[0].ID), afterExtent(prefixBatch, apart[0].ID)))
		must(t, err)
		name := tableName(slices.Concat(tables...)[0])
		x, _ := inOneTable(t, e, []int{block}, []int{block, block, block}, []int{block})
		bad.Store(&name)
		must(t, e.excising(pebble.KeyRange{Start: extentKey(prefixBatch, x[1].ID), End: afterExtent(prefixBatch, x[1].ID)}, func() error {
			if _, err := e.Read(apart[0].ID, 1, 3, 1<<20); err == nil {
				t.Error("the read succeeds")
			}
			return nil
		}))
		must(t, e.refusing())
		must(t, removeTold(e, x[1], 1))
		whole(t, e, x[0], x[2])
	})
}

// TestExcise_ErrorThatPasses: one read fails while a range is cut out, whichever it is. Nothing beside the range is
// lost.
func TestExcise_ErrorThatPasses(t *testing.T) {
	disk := vfs.NewCrashableMem()
	var x []core.Extent
	synctest.Test(t, func(t *testing.T) {
		block := 33 << 10
		x, _ = inOneTable(t, newEngine(t, "store", disk), []int{block, block}, []int{block, block, block}, []int{block, block})
	})
	failures := 0
	for which := range int64(6) {
		// The time is the real one: Pebble holds a lock for ever once it cannot write its manifest.
		if oneReadFails(t, disk.CrashClone(vfs.CrashCloneCfg{}), which+1, x) {
			failures++
		}
	}
	if failures == 0 {
		t.Error("no read has failed, so this test tries nothing")
	}
}

// oneReadFails removes the second of three extents, and reports whether the log has failed because of a read.
func oneReadFails(t *testing.T, disk vfs.FS, which int64, x []core.Extent) (failed bool) {
	t.Helper()
	var e atomic.Pointer[Engine]
	var reads atomic.Int64
	disk = errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		log := e.Load()
		if log == nil || op.Kind != errorfs.OpFileReadAt || path.Ext(op.Path) != ".sst" || log.excisions.now.Load() == nil {
			return nil
		}
		if n := reads.Add(1); n < which || n >= which+3 { // it is tried three times
			return nil
		}
		return syscall.EIO
	}))
	open := func() *Engine {
		log, err := Open("store", Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler)})
		must(t, err)
		log.patience = 100 * time.Millisecond
		return log
	}
	log := open()
	e.Store(log)
	err := removeTold(log, x[1], 1)
	e.Store(nil)
	if failed = log.refusing() != nil; failed && err == nil {
		t.Error("the removal succeeds in a log that has failed")
	}
	_ = log.Close() // it may have failed
	log = open()
	whole(t, log, x[0], x[2])
	must(t, log.Close())
	return failed
}

// TestExcising_KeeperWaitsForTwo: the keeper gets its turn soon, however many cuts wait for theirs.
func TestExcising_KeeperWaitsForTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, "store", vfs.NewMem())
		defer func() { must(t, e.Close()) }()
		var cuts sync.WaitGroup
		for range 20 {
			span := pebble.KeyRange{Start: batchKey(newExtent().ID, 1), End: []byte{prefixBatch + 1}}
			cuts.Go(func() {
				if err := e.excising(span, func() error { time.Sleep(40 * time.Millisecond); return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		done, err := e.turnWithin(walkWait)
		must(t, err)
		done()
		cuts.Wait()
	})
}
