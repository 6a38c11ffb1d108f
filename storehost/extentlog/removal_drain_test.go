package extentlog

import (
	"path"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// readGate holds up the next read of a segment.
type readGate struct {
	next atomic.Pointer[chan struct{}]
}

func (g *readGate) disk() vfs.FS {
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && path.Ext(op.Path) == ".seg" {
			if opened := g.next.Swap(nil); opened != nil {
				<-*opened
			}
		}
		return nil
	}))
}

// shut has the next read wait until open is called.
func (g *readGate) shut() (open func()) {
	c := make(chan struct{})
	g.next.Store(&c)
	return func() { close(c) }
}

// drainSlowly begins a drain of all, which goes on when finish is called, to its end.
func drainSlowly(t *testing.T, e *Engine, g *readGate, x core.Extent) (finish func()) {
	t.Helper()
	must(t, e.do(request{control: true, stage: func(*group) error { return e.journal.ring.End() }}))
	open := g.shut()
	was := e.journal.keeper.free.Swap(1)
	notify(e.journal.keeper.wake)
	<-time.After(time.Second) // the ring is grown first
	e.journal.keeper.free.Store(was)
	over, _ := e.extent(x.ID).held.underway()
	if over == nil {
		t.Fatal("no drain is under way")
	}
	return func() {
		open()
		<-over
	}
}

// records is how many records of an extent the database has.
func records(t *testing.T, e *Engine, id core.ExtentID) (n int) {
	t.Helper()
	iter, err := e.batches(&extent{id: id})
	must(t, err)
	defer iter.Close()
	for ok := iter.First(); ok; ok = iter.Next() {
		n++
	}
	return n
}

// fencedInLog is an extent of two batches that only the log has, and is fenced.
func fencedInLog(t *testing.T, e *Engine) (x core.Extent, h wire.BatchHeader) {
	t.Helper()
	x = newExtent()
	must(t, e.Open(x))
	appendBatch(t, e, x, nextBatch(t, &h, 100))
	appendBatch(t, e, x, nextBatch(t, &h, 100))
	_, err := e.Fence(x, 1)
	must(t, err)
	return x, h
}

// comesBack has another copy put where an extent was removed, and reads it.
func comesBack(t *testing.T, e *Engine, x core.Extent) {
	t.Helper()
	if n := records(t, e, x.ID); n > 0 {
		t.Errorf("the database has %d batches of a removed extent", n)
	}
	_, err := e.Fence(x, 2)
	must(t, err)
	var h wire.BatchHeader
	for range 2 {
		_, err = e.Copy(x.ID, recordsBatch(t, &h, 3, 10))
		must(t, err)
	}
	drainAll(t, e)
	if v, err := e.Verify(t.Context(), x.ID); err != nil || !v.Sound {
		t.Errorf("what came back is %+v, %v", v, err)
	}
}

// TestRemove_DrainEndsFirst: a drain puts a batch into the database after the rows of its removal, and ends before the
// removal is answered.
func TestRemove_DrainEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g readGate
		e := turning(t, g.disk())
		x, h := fencedInLog(t, e)
		must(t, e.Seal(x.ID, h.Last(), h.Checksum, 1))
		finish := drainSlowly(t, e, &g, x)
		staged, answered := make(chan struct{}), make(chan struct{})
		e.queue.offer(request{control: true, stage: func(*group) error { <-staged; return nil }, answer: func(error) {}})
		synctest.Wait() // what comes now is one round
		e.queue.offer(request{control: true, stage: func(*group) error { return nil }, answer: func(error) { <-answered }})
		removed := make(chan error, 1)
		go func() { removed <- e.Remove(x.ID, 1) }()
		synctest.Wait()
		close(staged)
		synctest.Wait() // the removal is in the database
		finish()
		close(answered)
		must(t, <-removed)
		comesBack(t, e, x)
	})
}

// TestRemove_SealedAtZeroWhileDrained: a drain puts a batch into the database that a seal has cut off, and the extent
// that is removed then has no bytes.
func TestRemove_SealedAtZeroWhileDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g readGate
		e := turning(t, g.disk())
		x, _ := fencedInLog(t, e)
		finish := drainSlowly(t, e, &g, x)
		must(t, e.Seal(x.ID, 0, 0, 1))
		finish()
		must(t, e.Remove(x.ID, 1))
		comesBack(t, e, x)
	})
}

// heldSync is a disk whose next sync of a segment does not return before release.
func heldSync(disk vfs.FS) (fs vfs.FS, hold func() (release func())) {
	var next atomic.Pointer[chan struct{}]
	fs = errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if path.Ext(op.Path) == ".seg" {
				if released := next.Swap(nil); released != nil {
					<-*released
				}
			}
		}
		return nil
	}))
	return fs, func() (release func()) {
		c := make(chan struct{})
		next.Store(&c)
		return func() { close(c) }
	}
}

// TestDrain_BesideAStepThatIsNotDurable: an extent is removed, or cut off by a seal, and its segment is drained before
// that is on the disk. Then the power goes. The extent is there as it was.
func TestDrain_BesideAStepThatIsNotDurable(t *testing.T) {
	for what, sealed := range map[string]bool{"a removal": true, "a seal": false, "both": false} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := vfs.NewCrashableMem()
				fs, hold := heldSync(disk)
				e := turning(t, fs)
				x, h := fencedInLog(t, e)
				if sealed {
					must(t, e.Seal(x.ID, h.Last(), h.Checksum, 1))
				}
				must(t, e.do(request{control: true, stage: func(*group) error {
					e.journal.toMark = false // it would begin a segment
					return e.journal.endSegment()
				}}))
				time.Sleep(time.Second) // the ring is grown first
				release := hold()
				done := make(chan error, 2)
				if !sealed {
					go func() { done <- e.Seal(x.ID, 0, 0, 1) }()
				}
				synctest.Wait()
				if sealed || what == "both" {
					go func() { done <- e.Remove(x.ID, 1) }()
				}
				synctest.Wait()
				was := e.journal.keeper.free.Swap(1)
				notify(e.journal.keeper.wake)
				time.Sleep(time.Second)
				e.journal.keeper.free.Store(was)
				after := disk.CrashClone(vfs.CrashCloneCfg{})
				if e.journal.keeper.drained.Load() == 0 {
					t.Error("nothing was drained")
				}
				release()
				must(t, <-done)
				e = turning(t, after)
				if s, err := e.State(x.ID); err != nil || s.Last != h.Last() {
					t.Fatalf("the extent is %+v, %v, want %d records", s, err, h.Last())
				}
				if v, err := e.Verify(t.Context(), x.ID); err != nil || !v.Sound {
					t.Errorf("the extent is %+v, %v", v, err)
				}
				must(t, removeTold(e, x, 1))
				comesBack(t, e, x)
			})
		})
	}
}
