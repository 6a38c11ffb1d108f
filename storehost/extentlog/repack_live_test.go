package extentlog

import (
	"errors"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// repackAll has the keeper repack each table of which a part was cut out, now.
func repackAll(e *Engine) {
	e.journal.keeper.garbage.Store(0)
	e.journal.keeper.look()
}

// sound reports extents that cannot be read to their end.
func sound(t *testing.T, e *Engine, all ...*writer) {
	t.Helper()
	for _, w := range all {
		if v, err := e.Verify(t.Context(), w.x.ID); err != nil || !v.Sound {
			t.Errorf("extent %s is %+v, %v", w.x.ID, v, err)
		}
	}
}

// TestRepack_DamageBetweenParts: a damaged block of another table between two parts keeps them apart, and no more.
func TestRepack_DamageBetweenParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := openHostile(t, disk)
		defer e.Close()
		a, bad, goes, c := newWriter(t, e), newWriter(t, e), newWriter(t, e), newWriter(t, e)
		a.append(1, 40<<10)
		goes.append(12, 40<<10)
		c.append(1, 40<<10)
		drainAll(t, e)
		bad.append(4, 41<<10)
		drainAll(t, e)
		must(t, removeTold(e, goes.x, 1))
		time.Sleep(2 * time.Second)
		flipBlock(t, disk, bad.b[0])
		repackAll(e)
		time.Sleep(time.Minute)
		if n := e.journal.keeper.moved.Load(); n < 80<<10 {
			t.Errorf("%d bytes were moved, want both parts beside the damage; %s", n, whereSpaceIs(e))
		}
		sound(t, e, a, c)
	})
}

// slowReads is a disk on which each read of a table takes so long, in ns.
type slowReads struct {
	vfs.FS
	each atomic.Int64
}

func (d *slowReads) disk() vfs.FS {
	return errorfs.Wrap(d.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && path.Ext(op.Path) == ".sst" {
			time.Sleep(time.Duration(d.each.Load()))
		}
		return nil
	}))
}

// largeTable has a table of many MiB, a third of which is of extents that stay.
func largeTable(t *testing.T, e *Engine) (stay []*writer) {
	t.Helper()
	var goes []*writer
	for round := range 2 { // the first one makes memtables large
		stay, goes = nil, nil
		for range 16 {
			stay, goes = append(stay, newWriter(t, e)), append(goes, newWriter(t, e), newWriter(t, e))
		}
		for _, w := range slices.Concat(stay, goes) {
			w.append(16, 16<<10)
		}
		drainAll(t, e)
		if round == 0 {
			goes = append(goes, stay...)
		}
		for _, w := range goes {
			must(t, removeTold(e, w.x, 1))
		}
	}
	time.Sleep(2 * time.Second)
	return stay
}

// TestRepack_PlansShortly: drains do not wait until a slow disk has told what lives in a table. It is told in several
// turns.
func TestRepack_PlansShortly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowReads{FS: vfs.NewMem()}
		e, err := Open("store", Options{Store: "s1", FS: slow.disk(), Log: slog.New(slog.DiscardHandler), Ring: 64 << 20})
		must(t, err)
		defer func() {
			slow.each.Store(0)
			must(t, e.Close())
		}()
		stay := largeTable(t, e)
		slow.each.Store(int64(5 * time.Millisecond))
		repackAll(e)
		most := time.Duration(0)
		for range 5 {
			time.Sleep(time.Millisecond)
			began := time.Now()
			drainAll(t, e)
			most = max(most, time.Since(began))
		}
		time.Sleep(time.Minute)
		slow.each.Store(0)
		n := e.journal.keeper.moved.Load()
		if t.Logf("the slowest drain took %s, %d KiB moved; %s", most, n>>10, whereSpaceIs(e)); most > 500*time.Millisecond || n < 4000<<10 {
			t.Errorf("a drain took %s, and %d KiB were moved, want all that lives", most, n>>10)
		}
		sound(t, e, stay...)
	})
}

// TestRepack_AppendsSaturate: appends that always wait for the next segment do not keep tables from being repacked,
// once garbage takes much space.
func TestRepack_AppendsSaturate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits atomic.Pointer[Engine]
		var waited atomic.Int64
		e, stay := manyRuns(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			e := waits.Load()
			if e == nil || op.Kind != errorfs.OpFileReadAt || path.Ext(op.Path) != ".sst" {
				return nil
			}
			for range 100 {
				if n := e.journal.keeper.wanted.Load(); n > 0 && !e.journal.ring.HasFree(n) {
					waited.Add(1)
					break
				}
				time.Sleep(10 * time.Microsecond)
			}
			return nil
		})))
		defer func() { must(t, e.Close()) }()
		var appends []*writer
		for range 16 {
			appends = append(appends, newWriter(t, e))
		}
		stop, over := make(chan struct{}), make(chan struct{}, len(appends))
		for _, w := range appends {
			go func() {
				defer func() { over <- struct{}{} }()
				for !isClosed(stop) {
					w.append(1, 100<<10)
					time.Sleep(time.Millisecond)
				}
			}()
		}
		waits.Store(e)
		e.journal.keeper.garbage.Store(1) // appends wait as soon as there is any garbage
		for range 100 {
			if time.Sleep(2 * time.Millisecond); e.journal.keeper.moved.Load() >= 1000<<10 {
				break
			}
		}
		n := e.journal.keeper.moved.Load()
		close(stop)
		for range appends {
			<-over
		}
		waits.Store(nil)
		if t.Logf("%d KiB moved", n>>10); waited.Load() == 0 || n < 1000<<10 {
			t.Errorf("%d KiB were moved; appends waited at %d reads", n>>10, waited.Load())
		}
		sound(t, e, stay...)
	})
}

// TestRepack_AfterAStart: what a run left to repack is repacked in the next one, though nothing is cut out any more.
func TestRepack_AfterAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := openHostile(t, disk)
		stays, goes := newWriter(t, e), newWriter(t, e)
		stays.append(2, 10<<10)
		goes.append(30, 10<<10)
		drainAll(t, e)
		must(t, removeTold(e, goes.x, 1))
		must(t, e.Close())
		e = openHostile(t, disk)
		defer func() { must(t, e.Close()) }()
		e.journal.keeper.garbage.Store(0)
		time.Sleep(time.Minute)
		if e.journal.keeper.moved.Load() == 0 {
			t.Errorf("nothing is moved; %s", whereSpaceIs(e))
		}
	})
}

// TestRepack_ShortagePasses: a process that lacks file descriptors for a while repacks soon after.
func TestRepack_ShortagePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lacks atomic.Bool
		e := openHostile(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if lacks.Load() && (op.Kind == errorfs.OpFileReadAt || op.Kind == errorfs.OpOpen) && path.Ext(op.Path) == ".sst" {
				return syscall.EMFILE
			}
			return nil
		})))
		defer func() { must(t, e.Close()) }()
		stays, goes := newWriter(t, e), newWriter(t, e)
		stays.append(2, 10<<10)
		goes.append(30, 10<<10)
		drainAll(t, e)
		must(t, removeTold(e, goes.x, 1))
		time.Sleep(2 * time.Second)
		lacks.Store(true)
		repackAll(e)
		time.Sleep(time.Minute)
		lacks.Store(false)
		if n := e.journal.keeper.moved.Load(); n > 0 {
			t.Fatalf("%d bytes were moved", n)
		}
		time.Sleep(30 * time.Second)
		if e.journal.keeper.moved.Load() == 0 {
			t.Error("nothing is moved 30 seconds after the shortage")
		}
	})
}

// TestRepack_ReadFailsDuringACut: a table that cannot be read is no reason to fail the log because a range is being cut
// out meanwhile.
func TestRepack_ReadFailsDuringACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads, manifests atomic.Pointer[chan struct{}]
		var fails atomic.Int64
		e := openHostile(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			switch {
			case op.Kind == errorfs.OpFileReadAt && path.Ext(op.Path) == ".sst":
				if held := reads.Swap(nil); held != nil {
					<-*held
					fails.Store(3) // as often as it is tried
				}
				if fails.Add(-1) >= 0 {
					return syscall.EIO
				}
			case op.Kind == errorfs.OpFileSync && strings.HasPrefix(path.Base(op.Path), "MANIFEST"):
				if held := manifests.Load(); held != nil {
					<-*held
				}
			}
			return nil
		})))
		defer func() { must(t, e.Close()) }()
		first, goes, stays, next, last := newWriter(t, e), newWriter(t, e), newWriter(t, e), newWriter(t, e), newWriter(t, e)
		first.append(1, 10<<10)
		goes.append(60, 10<<10)
		stays.append(1, 10<<10)
		next.append(20, 10<<10)
		last.append(1, 10<<10)
		drainAll(t, e)
		must(t, removeTold(e, goes.x, 1))
		time.Sleep(2 * time.Second)
		must(t, e.db.Flush())
		readEnds, cutEnds := make(chan struct{}), make(chan struct{})
		reads.Store(&readEnds)
		repackAll(e)
		time.Sleep(time.Second)
		if reads.Load() != nil {
			t.Fatal("no table is being read")
		}
		removed := make(chan error, 1)
		go func() { removed <- removeTold(e, next.x, 1) }()
		for range 1000 { // the flush before the cut writes the manifest, too
			if time.Sleep(time.Millisecond); e.excisions.now.Load() != nil {
				break
			}
		}
		manifests.Store(&cutEnds)
		close(readEnds)
		time.Sleep(time.Second)
		close(cutEnds)
		must(t, <-removed)
		must(t, e.refusing())
	})
}

// TestRepack_LeavingExtent: a table that cannot be moved because of an extent which is being removed costs the others
// nothing.
func TestRepack_LeavingExtent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openHostile(t, vfs.NewMem())
		defer func() { must(t, e.Close()) }()
		var stay, goes []*writer
		for i := range 2 {
			stay, goes = append(stay, newWriter(t, e)), append(goes, newWriter(t, e))
			stay[i].append(1+4*i, 10<<10)
			goes[i].append(30, 10<<10)
			drainAll(t, e)
		}
		for _, w := range goes {
			must(t, removeTold(e, w.x, 1))
		}
		time.Sleep(2 * time.Second)
		e.moves.removes(stay[0].x.ID)
		e.journal.keeper.garbage.Store(500 << 10) // so one table is enough
		e.journal.keeper.look()
		time.Sleep(time.Minute)
		if n := e.journal.keeper.moved.Load(); n < 50<<10 {
			t.Errorf("%d KiB were moved, want the other table; %s", n>>10, whereSpaceIs(e))
		}
		e.moves.removed(stay[0].x.ID)
	})
}

// TestMetrics_LogFailed: a log that has failed does not wait for figures of a database that holds its lock for ever.
func TestMetrics_LogFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var manifests atomic.Pointer[chan struct{}]
		e := openHostile(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if held := manifests.Load(); held != nil && op.Kind == errorfs.OpFileSync && strings.HasPrefix(path.Base(op.Path), "MANIFEST") {
				<-*held
			}
			return nil
		})))
		newWriter(t, e).append(1, 10)
		held := make(chan struct{})
		manifests.Store(&held)
		_, err := e.db.AsyncFlush()
		must(t, err)
		time.Sleep(time.Second)
		asked := make(chan error, 1)
		go func() {
			_, err := e.metrics()
			asked <- err
		}()
		time.Sleep(time.Second)
		e.fail(errors.New("the disk is broken"))
		if synctest.Wait(); len(asked) != 1 || <-asked == nil {
			t.Error("the figures are waited for")
		}
		close(held)
		_ = e.Close() // it has failed
	})
}
