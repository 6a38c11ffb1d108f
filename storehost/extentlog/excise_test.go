package extentlog

import (
	"log/slog"
	"path"
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
		if log == nil || op.Kind != errorfs.OpFileReadAt || path.Ext(op.Path) != ".sst" || !log.excisions.underway() || reads.Add(1) != which {
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
