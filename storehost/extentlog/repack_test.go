package extentlog

import (
	"log/slog"
	"path"
	"sync"
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

// batching is an engine whose drains put many batches into a table.
func batching(t *testing.T, disk vfs.FS) *Engine {
	e, err := Open("store", Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler), Ring: 4 << 20})
	must(t, err)
	t.Cleanup(func() { must(t, e.Close()) })
	return e
}

// mixed has each of some tables hold a batch of the first extent and many of others, which are returned, too.
func mixed(t *testing.T, e *Engine, tables int) (stays core.Extent, others []core.Extent) {
	t.Helper()
	stays = newExtent()
	must(t, e.Open(stays))
	var h wire.BatchHeader
	for range tables {
		appendBatch(t, e, stays, nextBatch(t, &h, 4<<10))
		x, other := newExtent(), wire.BatchHeader{}
		must(t, e.Open(x))
		for range 30 {
			appendBatch(t, e, x, nextBatch(t, &other, 6<<10))
		}
		others = append(others, x)
		drainAll(t, e)
	}
	return stays, others
}

func fileBytes(e *Engine) int64 {
	m := e.db.Metrics()
	tables := m.Total()
	return tables.TablesSize - int64(m.VirtualSize()) + int64(m.Table.BackingTableSize)
}

// TestRepack_OneBatchKeepsNoTable: an extent with a batch in each table does not keep the space of removed ones.
func TestRepack_OneBatchKeepsNoTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := batching(t, vfs.NewMem())
		stays, others := mixed(t, e, 10)
		for _, x := range others {
			must(t, removeTold(e, x, 1))
		}
		time.Sleep(time.Second)
		if n := fileBytes(e); n < 1<<20 {
			t.Fatalf("tables have %d bytes before anything is repacked", n)
		}
		e.journal.keeper.garbage.Store(0)
		e.journal.keeper.look()
		time.Sleep(time.Second)
		if n := fileBytes(e); n > 200<<10 {
			t.Errorf("tables have %d bytes, of which 40 KiB live", n)
		}
		if v, err := e.Verify(t.Context(), stays.ID); err != nil || !v.Sound {
			t.Errorf("the extent that stays is %+v, %v", v, err)
		}
	})
}

// TestRepack_ReadersMeanwhile: readers of batches that change their tables find each of them.
func TestRepack_ReadersMeanwhile(t *testing.T) {
	e := batching(t, vfs.NewMem())
	e.journal.keeper.garbage.Store(0)
	var over atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		stays, others := mixed(t, e, 3)
		readers.Go(func() {
			for !over.Load() {
				if n := records(t, e, stays.ID); n != 3 {
					t.Errorf("the database has %d batches, want 3", n)
					return
				}
			}
		})
		readers.Go(func() {
			for !over.Load() {
				if v, err := e.Verify(t.Context(), stays.ID); err != nil || !v.Sound {
					t.Errorf("the extent that stays is %+v, %v", v, err)
					return
				}
				if _, err := e.Seek(stays.ID, 1); err != nil {
					t.Errorf("seek: %v", err)
					return
				}
			}
		})
		for _, x := range others {
			must(t, removeTold(e, x, 1))
		}
		for range 8 {
			more, others := mixed(t, e, 2)
			for _, x := range append(others, more) {
				must(t, removeTold(e, x, 1))
			}
		}
	}
	over.Store(true)
	readers.Wait()
	if e.journal.keeper.moved.Load() == 0 {
		t.Error("nothing was moved")
	}
}

// TestRepack_RemovalMeanwhile: a removal waits for the move of its batches, and leaves none of them.
func TestRepack_RemovalMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gate atomic.Pointer[chan struct{}]
		e := batching(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate && path.Base(op.Path) == repackName {
				if held := gate.Swap(nil); held != nil {
					<-*held
				}
			}
			return nil
		})))
		stays, others := mixed(t, e, 4)
		held := make(chan struct{})
		gate.Store(&held)
		e.journal.keeper.garbage.Store(0)
		for _, x := range others {
			must(t, removeTold(e, x, 1))
		}
		time.Sleep(time.Second)
		if gate.Load() != nil {
			t.Fatalf("nothing is being moved: %d bytes were; %s", e.journal.keeper.moved.Load(), whereSpaceIs(e))
		}
		removed := make(chan error, 1)
		go func() { removed <- removeTold(e, stays, 1) }()
		synctest.Wait()
		select {
		case err := <-removed:
			t.Fatalf("removed while it is moved: %v", err)
		default:
		}
		close(held)
		must(t, <-removed)
		comesBack(t, e, stays)
	})
}

// TestRepack_UnreadableTable: a table that cannot be read stays as it is, and the store goes on.
func TestRepack_UnreadableTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bad atomic.Bool
		e := batching(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if bad.Load() && op.Kind == errorfs.OpFileReadAt && path.Ext(op.Path) == ".sst" {
				return syscall.EIO
			}
			return nil
		})))
		stays, others := mixed(t, e, 4)
		for _, x := range others {
			must(t, removeTold(e, x, 1))
		}
		time.Sleep(time.Second)
		bad.Store(true)
		e.journal.keeper.garbage.Store(0)
		e.journal.keeper.look()
		time.Sleep(time.Minute)
		bad.Store(false)
		must(t, e.refusing())
		if v, err := e.Verify(t.Context(), stays.ID); err != nil || !v.Sound {
			t.Errorf("the extent that stays is %+v, %v", v, err)
		}
	})
}
