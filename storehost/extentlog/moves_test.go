package extentlog

import (
	"errors"
	"fmt"
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

// TestMoves: a removal waits for the move of its extent, a truncation spoils a copy, or waits for the change.
func TestMoves(t *testing.T) {
	id := func(n byte) core.ExtentID { return core.ExtentID{ID: core.ID{n}} }
	s := &makeEngine("store", Options{}).moves
	if over := s.removes(id(9)); over != nil {
		t.Error("a removal waits, and nothing is moved")
	}
	if _, err := s.begin(batchKey(id(8), 1), batchKey(id(9), 2)); err != errLeaving {
		t.Error("an extent is moved that is being removed")
	}
	s.removed(id(9))
	m, err := s.begin(batchKey(id(3), 5), batchKey(id(5), 7))
	must(t, err)
	for n, covered := range map[byte]bool{2: false, 3: true, 4: true, 5: true, 6: false} {
		if over := s.removes(id(n)); (over != nil) != covered {
			t.Errorf("a removal of %d waits: %t", n, over != nil)
		}
		s.removed(id(n))
	}
	if over := s.truncates(id(6)); over != nil || !s.change(m) {
		t.Error("a truncation beside the move disturbs it")
	}
	if over := s.truncates(id(4)); over == nil || isClosed(over) {
		t.Error("a truncation does not wait for the change")
	}
	s.end(m)
	if !isClosed(m.over) {
		t.Error("the move is not over")
	}
	m, _ = s.begin(batchKey(id(3), 5), batchKey(id(3), 7))
	if over := s.truncates(id(3)); over != nil || s.change(m) {
		t.Error("a copy that is spoiled replaces the batches")
	}
	s.end(m)
	if _, err := s.begin(batchKey(id(3), 5), batchKey(id(3), 7)); err != errMoveLater {
		t.Errorf("a move begins with %v before the truncation is in the database", err)
	}
	s.truncated(id(3))
	m, err = s.begin(batchKey(id(3), 5), batchKey(id(3), 7))
	must(t, err)
	s.end(m)
	if over := s.truncates(id(3)); over != nil {
		t.Error("a truncation waits, and nothing is moved")
	}
}

// sealing has an extent x of five batches, whose table is to be repacked, on a disk with a hook before each operation.
func sealing(t *testing.T, hook func(errorfs.Op)) (e *Engine, x *writer) {
	t.Helper()
	e = openHostile(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		hook(op)
		return nil
	})))
	x = newWriter(t, e)
	other := newWriter(t, e)
	x.append(5, 10<<10)
	other.append(30, 10<<10)
	drainAll(t, e)
	must(t, removeTold(e, other.x, 1))
	time.Sleep(time.Second)
	return e, x
}

// seal seals an extent behind some of its batches.
func (w *writer) seal(batches int) error {
	if _, err := w.e.Fence(w.x, 1); err != nil || batches == 0 {
		return errors.Join(err, w.e.Seal(w.x.ID, 0, 0, 1))
	}
	end, err := wire.DecodeBatch(w.b[batches-1])
	if err != nil {
		return err
	}
	return w.e.Seal(w.x.ID, end.Last(), end.Checksum, 1)
}

// TestMove_SealDuringChange: a seal waits while the database changes tables, appends do not wait for it, and it leaves
// nothing behind its end. One at zero reads no batch, which would wait by itself.
func TestMove_SealDuringChange(t *testing.T) {
	for batches := range 2 {
		t.Run(fmt.Sprintf("behind %d", batches), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { sealDuringChange(t, batches) })
		})
	}
}

func sealDuringChange(t *testing.T, batches int) {
	var gate atomic.Pointer[chan struct{}]
	e, x := sealing(t, func(op errorfs.Op) {
		if op.Kind == errorfs.OpLink && path.Base(op.Path) == repackName {
			if held := gate.Swap(nil); held != nil {
				<-*held
			}
		}
	})
	defer func() { must(t, e.Close()) }()
	other := newWriter(t, e)
	held := make(chan struct{})
	gate.Store(&held)
	repackAll(e)
	time.Sleep(time.Second)
	if gate.Load() != nil {
		t.Fatal("nothing is being moved")
	}
	sealed, appended := make(chan error, 1), make(chan error, 1)
	go func() { sealed <- x.seal(batches) }()
	time.Sleep(time.Second)
	e.Append(other.x.ID, nextBatch(t, &other.h, 10), 0, func(_ core.Seq, err error) { appended <- err })
	time.Sleep(time.Second)
	if len(sealed) > 0 || len(appended) == 0 {
		t.Errorf("sealed while tables change: %t; appended meanwhile: %t", len(sealed) > 0, len(appended) > 0)
	}
	close(held)
	must(t, errors.Join(<-sealed, <-appended))
	time.Sleep(time.Second)
	if n := records(t, e, x.x.ID); n != batches {
		t.Errorf("the database has %d batches of an extent that was sealed behind %d", n, batches)
	}
	if e.journal.keeper.moved.Load() == 0 {
		t.Error("nothing was moved")
	}
}

// TestMove_SealStagedBefore: a move begins behind a truncation that is staged, and not in the database yet.
func TestMove_SealStagedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow, copies atomic.Bool
		sealed := make(chan error, 1)
		e, x := sealing(t, func(op errorfs.Op) {
			switch {
			case slow.Load() && op.Kind == errorfs.OpFileSyncData && path.Ext(op.Path) == ".seg":
				time.Sleep(2 * time.Second)
			case slow.Load() && op.Kind == errorfs.OpCreate && path.Base(op.Path) == repackName:
				copies.Store(true)
				time.Sleep(10 * time.Second) // the copy is as old as its iterator
			}
		})
		defer func() { must(t, e.Close()) }()
		e.journal.keeper.garbage.Store(0)
		_, err := e.Fence(x.x, 1)
		must(t, err)
		slow.Store(true)
		go func() { sealed <- x.seal(1) }()
		time.Sleep(time.Second) // it is being synced
		e.journal.keeper.look()
		time.Sleep(time.Minute)
		slow.Store(false)
		must(t, <-sealed)
		if !copies.Load() {
			t.Error("nothing is moved")
		}
		if n := records(t, e, x.x.ID); n != 1 {
			t.Errorf("the database has %d batches of an extent that was sealed behind the first", n)
		}
	})
}

// manyRuns has tables of which sixty batches live, with more between any two of them than is moved together.
func manyRuns(t *testing.T, disk vfs.FS) (e *Engine, stay []*writer) {
	t.Helper()
	e = openHostile(t, disk)
	var goes, between []*writer
	for range 60 {
		stay, goes, between = append(stay, newWriter(t, e)), append(goes, newWriter(t, e)), append(between, newWriter(t, e))
	}
	for i := range stay {
		stay[i].append(1, 40<<10)
		goes[i].append(2, 40<<10)
		if i%20 == 19 {
			drainAll(t, e)
		}
	}
	for i, w := range between {
		w.append(10, 10<<10)
		if i%20 == 19 {
			drainAll(t, e)
		}
	}
	for _, w := range goes {
		must(t, removeTold(e, w.x, 1))
	}
	time.Sleep(time.Minute)
	return e, stay
}

// TestMove_ManyRuns: appends wait for a fraction of a second, also when the ranges to move are many, and syncs slow.
func TestMove_ManyRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &laggingDisk{FS: vfs.NewMem()}
		e, stay := manyRuns(t, disk)
		defer func() {
			disk.took.Store(0)
			must(t, e.Close())
		}()
		disk.took.Store(int64(5 * time.Millisecond))
		e.journal.keeper.garbage.Store(0)
		e.journal.keeper.look()
		time.Sleep(time.Millisecond)
		w := newWriter(t, e)
		most := time.Duration(0)
		for range 2000 {
			began := time.Now()
			w.append(1, 10<<10)
			most = max(most, time.Since(began))
		}
		time.Sleep(time.Minute)
		t.Logf("the slowest append took %s; %d KiB moved", most, e.journal.keeper.moved.Load()>>10)
		if most > 500*time.Millisecond {
			t.Errorf("an append took %s", most)
		}
		if n := e.journal.keeper.moved.Load(); n < 2000<<10 {
			t.Errorf("only %d KiB were moved", n>>10)
		}
		for _, w := range stay {
			if v, err := e.Verify(t.Context(), w.x.ID); err != nil || !v.Sound {
				t.Errorf("extent %s is %+v, %v", w.x.ID, v, err)
			}
		}
	})
}

// TestMove_CloseMeanwhile: a log closes soon while batches move, and has them when it is opened again.
func TestMove_CloseMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &laggingDisk{FS: vfs.NewMem()}
		e, stay := manyRuns(t, disk)
		disk.took.Store(int64(20 * time.Millisecond))
		e.journal.keeper.garbage.Store(0)
		e.journal.keeper.look()
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		must(t, e.Close())
		if took := time.Since(began); took > time.Second {
			t.Errorf("closed after %s", took)
		}
		if n := e.journal.keeper.moved.Load(); n == 0 || n > 1000<<10 {
			t.Errorf("%d KiB were moved, so this test tries nothing", n>>10)
		}
		disk.took.Store(0)
		e = openHostile(t, disk)
		for _, w := range stay {
			if v, err := e.Verify(t.Context(), w.x.ID); err != nil || !v.Sound {
				t.Errorf("extent %s is %+v, %v", w.x.ID, v, err)
			}
		}
		must(t, e.Close())
	})
}

// TestMove_ReadsFail: a table that cannot be read while a range is cut out of it loses nothing, whichever read it is
// that fails. The log may fail.
func TestMove_ReadsFail(t *testing.T) {
	failures := 0
	for which := range int64(8) {
		if readsOfAMoveFail(t, which+1) {
			failures++
		}
	}
	if failures == 0 {
		t.Error("no log has failed, so this test tries nothing")
	}
}

// readsOfAMoveFail reports whether the log has failed because of a read.
func readsOfAMoveFail(t *testing.T, which int64) (failed bool) {
	t.Helper()
	disk := vfs.NewMem()
	var armed atomic.Pointer[Engine]
	var reads atomic.Int64
	open := func() *Engine {
		e := openHostile(t, errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			e := armed.Load()
			if e == nil || op.Kind != errorfs.OpFileReadAt || path.Base(path.Dir(op.Path)) != databaseDir || e.excisions.now.Load() == nil {
				return nil
			}
			if n := reads.Add(1); n < which || n >= which+3 { // it is tried three times
				return nil
			}
			return syscall.EIO
		})))
		e.patience = 100 * time.Millisecond // Pebble holds a lock for ever once it cannot write its manifest
		return e
	}
	e := open()
	beside, stays, behind, goes := newWriter(t, e), newWriter(t, e), newWriter(t, e), newWriter(t, e)
	stays.append(5, 40<<10)
	goes.append(12, 40<<10)
	drainAll(t, e)
	beside.append(2, 40<<10)
	behind.append(2, 40<<10)
	drainAll(t, e) // a table that goes beyond what is moved, on both sides
	must(t, removeTold(e, goes.x, 1))
	armed.Store(e)
	e.journal.keeper.garbage.Store(0)
	e.journal.keeper.look()
	late := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ; e.journal.keeper.moved.Load() == 0 && e.refusing() == nil; <-tick.C {
		select {
		case <-late:
			t.Fatal("nothing was moved")
		default:
		}
	}
	failed = e.refusing() != nil
	armed.Store(nil)
	_ = e.Close() // it may have failed
	e = open()
	for _, w := range []*writer{beside, stays, behind} {
		if v, err := e.Verify(t.Context(), w.x.ID); err != nil || !v.Sound {
			t.Errorf("read %d: extent %s is %+v, %v", which, w.x.ID, v, err)
		}
	}
	must(t, e.Close())
	return failed
}
