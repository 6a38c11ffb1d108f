package extentlog

import (
	"bytes"
	"fmt"
	"io"
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

// writer appends batches to an extent whose id is behind those of all extents made before.
type writer struct {
	t *testing.T
	e *Engine
	x core.Extent
	h wire.BatchHeader
	b [][]byte // the batches
}

func newWriter(t *testing.T, e *Engine) *writer {
	t.Helper()
	time.Sleep(2 * time.Millisecond) // ids are in the order of time
	w := &writer{t: t, e: e, x: newExtent()}
	must(t, e.Open(w.x))
	return w
}

func (w *writer) append(n, size int) {
	w.t.Helper()
	for range n {
		w.b = append(w.b, nextBatch(w.t, &w.h, size))
		appendBatch(w.t, w.e, w.x, w.b[len(w.b)-1])
	}
}

// openHostile is batching for an engine that need not close without an error.
func openHostile(t *testing.T, disk vfs.FS) *Engine {
	t.Helper()
	e, err := Open("store", Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler), Ring: 4 << 20})
	must(t, err)
	return e
}

// flipBlock damages the block of a table that has a batch.
func flipBlock(t *testing.T, disk vfs.FS, batch []byte) {
	t.Helper()
	names, err := disk.List("store/log")
	must(t, err)
	for _, name := range names {
		if path.Ext(name) != ".sst" {
			continue
		}
		f, err := disk.OpenReadWrite(disk.PathJoin("store/log", name), vfs.WriteCategoryUnspecified)
		must(t, err)
		b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
		must(t, err)
		if at := bytes.Index(b, batch); at >= 0 {
			if _, err := f.WriteAt([]byte{b[at+200] ^ 1}, int64(at+200)); err != nil {
				t.Fatal(err)
			}
			must(t, f.Close())
			return
		}
		must(t, f.Close())
	}
	t.Fatal("no table has that batch")
}

// TestRepack_DamageBelowADeletion: a block of removed batches that cannot be read costs no live ones. The edge of the
// range that is moved lies in a deletion. There copyTo does not look at the tables below, but the database does when it
// cuts the range out. It ignores the error, takes it that nothing is beside the range, and drops the rest of the table.
func TestRepack_DamageBelowADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := openHostile(t, disk)
		defer e.Close()
		x, behind, other := newWriter(t, e), newWriter(t, e), newWriter(t, e)
		x.append(2, 15<<10) // a block
		x.append(1, 30<<10) // another one
		behind.append(1, 40<<10)
		drainAll(t, e)
		x.append(1, 1<<10)
		other.append(30, 6<<10)
		drainAll(t, e)
		must(t, removeTold(e, other.x, 1)) // only x has something in this table now
		time.Sleep(2 * time.Second)
		flipBlock(t, disk, x.b[2])
		e.journal.keeper.garbage.Store(150 << 10)
		must(t, removeTold(e, x.x, 1)) // small: deleted, and cut out later
		e.journal.keeper.look()
		time.Sleep(time.Minute)
		must(t, e.refusing())
		if v, err := e.Verify(t.Context(), behind.x.ID); err != nil || !v.Sound {
			t.Errorf("an extent of which no byte was damaged is %+v, %v; %s", v, err, whereSpaceIs(e))
		}
	})
}

// TestRepack_ErrorThatPasses: one read that fails while a range is cut out costs no batches beside the range. Moving
// more than the block cache holds has it read the edges again, which copyTo has read before.
func TestRepack_ErrorThatPasses(t *testing.T) {
	oneAtATime(t)
	for n := range int64(8) {
		t.Run(fmt.Sprintf("read %d", n+1), func(t *testing.T) { oneReadOfAMoveFails(t, n+1) })
	}
}

func oneReadOfAMoveFails(t *testing.T, which int64) {
	var armed atomic.Bool
	var fails, failed atomic.Int64
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch {
		case armed.Load() && op.Kind == errorfs.OpLink && path.Base(op.Path) == repackName:
			fails.Store(which)
			armed.Store(false)
		case op.Kind == errorfs.OpFileReadAt && path.Ext(op.Path) == ".sst" && fails.Load() > 0 && fails.Add(-1) == 0:
			failed.Add(1)
			return syscall.EIO
		}
		return nil
	}))
	e, err := Open("store", Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler), Ring: 64 << 20})
	must(t, err)
	defer e.Close()
	beside := newWriter(t, e)
	var moves, goes []*writer
	for range 7 {
		moves = append(moves, newWriter(t, e))
	}
	behind := newWriter(t, e)
	for range 9 {
		goes = append(goes, newWriter(t, e))
	}
	for _, w := range append(moves, goes...) {
		w.append(9, 90<<10)
	}
	drainAll(t, e) // most of it is to be removed
	beside.append(1, 40<<10)
	behind.append(1, 40<<10)
	drainAll(t, e) // a table that goes beyond what is moved, on both sides
	for _, w := range goes {
		must(t, removeTold(e, w.x, 1))
	}
	must(t, e.db.Flush())
	armed.Store(true)
	e.journal.keeper.garbage.Store(0)
	e.journal.keeper.look()
	for late := time.After(20 * time.Second); armed.Load(); {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			t.Fatal("nothing was moved")
		}
	}
	<-time.After(time.Second)
	must(t, e.refusing())
	t.Logf("%d reads failed, %d KiB moved", failed.Load(), e.journal.keeper.moved.Load()>>10)
	for _, w := range append(moves, beside, behind) {
		if v, err := e.Verify(t.Context(), w.x.ID); err != nil || !v.Sound {
			t.Errorf("extent %s is %+v, %v", w.x.ID, v, err)
		}
	}
}

// TestRepack_OneBadBlock: a block that cannot be read keeps the space of its table, not that of others, and not once
// its extent is removed.
func TestRepack_OneBadBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := openHostile(t, disk)
		defer e.Close()
		stays, bad := newWriter(t, e), newWriter(t, e)
		var others []*writer
		for i := range 10 {
			stays.append(1, 40<<10)
			if i == 5 {
				bad.append(1, 41<<10)
			}
			o := newWriter(t, e)
			o.append(30, 10<<10)
			others = append(others, o)
			drainAll(t, e)
		}
		for _, o := range others {
			must(t, removeTold(e, o.x, 1))
		}
		time.Sleep(2 * time.Second)
		flipBlock(t, disk, bad.b[0])
		e.journal.keeper.garbage.Store(0)
		e.journal.keeper.look()
		time.Sleep(time.Minute)
		synctest.Wait() // the keeper looks each second
		damaged := 0
		for _, l := range e.repacker.later {
			if l.wait >= damagedFor {
				damaged++
			}
		}
		if damaged > 1 {
			t.Errorf("%d tables count as damaged, want 1; tables have %d KiB, 440 live", damaged, fileBytes(e)>>10)
		}
		must(t, removeTold(e, bad.x, 1))
		time.Sleep(2 * time.Second)
		e.journal.keeper.look()
		time.Sleep(time.Minute)
		if n := fileBytes(e); n > 1<<20 {
			t.Errorf("tables have %d KiB once the bad extent is gone, of which 400 live", n>>10)
		}
	})
}

// TestRepack_UncutExtent: while an extent cannot be cut out, the keeper does not repack its table again and again.
func TestRepack_UncutExtent(t *testing.T) {
	disk := vfs.NewMem()
	e := openHostile(t, disk)
	defer e.Close()
	first, removed, bad, between, other := newWriter(t, e), newWriter(t, e), newWriter(t, e), newWriter(t, e), newWriter(t, e)
	keeps, goes := newWriter(t, e), newWriter(t, e)
	removed.append(10, 10<<10)
	other.append(40, 10<<10)
	drainAll(t, e)
	first.append(1, 40<<10)
	bad.append(1, 41<<10)
	between.append(1, 42<<10)
	drainAll(t, e) // a table with a bad block beside the removed extent
	keeps.append(30, 10<<10)
	goes.append(10, 10<<10)
	drainAll(t, e)
	must(t, removeTold(e, other.x, 1))
	must(t, removeTold(e, goes.x, 1))
	must(t, e.db.Flush())
	flipBlock(t, disk, bad.b[0])
	if err := removeTold(e, removed.x, 1); core.CodeOf(err) != core.CodeInternal || e.uncut.count() != 1 {
		t.Fatalf("got %v, with %d extents to be cut out again", err, e.uncut.count())
	}
	must(t, e.db.Flush())
	was := e.db.Metrics()
	e.journal.keeper.garbage.Store(0)
	e.journal.keeper.look()
	<-time.After(3 * time.Second)
	is := e.db.Metrics()
	t.Logf("%d flushes in 3 seconds; %s", is.Flush.Count-was.Flush.Count, whereSpaceIs(e))
	if n := is.Flush.Count - was.Flush.Count; n > 20 {
		t.Errorf("%d flushes in 3 seconds", n)
	}
}
