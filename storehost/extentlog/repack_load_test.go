package extentlog

import (
	"path"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/wire"
)

// scattered has a table of half a MiB of a removed extent, and of a batch of many others each. Each of these has so
// many batches of 10 KiB, in other tables.
func scattered(t *testing.T, e *Engine, extents, batches int) {
	t.Helper()
	var all []*writer
	for range extents {
		all = append(all, newWriter(t, e))
	}
	for _, w := range all {
		w.append(1, 10)
	}
	other := newWriter(t, e)
	other.append(50, 10<<10)
	drainAll(t, e)
	for i, w := range all {
		w.append(batches, 10<<10)
		if i%20 == 19 {
			drainAll(t, e)
		}
	}
	drainAll(t, e)
	must(t, removeTold(e, other.x, 1))
	time.Sleep(2 * time.Second)
}

// TestRepack_MovesWhatItFrees: a turn moves no more than it frees: it moves what little lives in one table, and leaves
// two alone of which it would move more than that.
func TestRepack_MovesWhatItFrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openHostile(t, vfs.NewMem())
		defer func() { must(t, e.Close()) }()
		for _, live := range []int{5, 35} { // of 50 batches
			stays, goes := newWriter(t, e), newWriter(t, e)
			stays.append(live, 10<<10)
			goes.append(50-live, 10<<10)
			drainAll(t, e)
			must(t, removeTold(e, goes.x, 1))
		}
		scattered(t, e, 200, 5)
		was := fileBytes(e)
		repackAll(e)
		time.Sleep(time.Minute)
		freed, moved := was-fileBytes(e), int64(e.Vitals().MovedBytes)
		t.Logf("freed %d KiB, moved %d KiB", freed>>10, moved>>10)
		if moved < 50<<10 || moved > 60<<10 || freed < 400<<10 {
			t.Errorf("moved %d KiB to free %d, want 50 to free 450", moved>>10, freed>>10)
		}
	})
}

// laggingDisk takes a while for each sync of a file or a directory.
type laggingDisk struct {
	vfs.FS
	took atomic.Int64 // ns
}

func (d *laggingDisk) wait() {
	if took := d.took.Load(); took > 0 {
		time.Sleep(time.Duration(took))
	}
}

func (d *laggingDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	return &laggingFile{f, d}, err
}

func (d *laggingDisk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	return &laggingFile{f, d}, err
}

type laggingFile struct {
	vfs.File
	d *laggingDisk
}

func (f *laggingFile) Sync() error { f.d.wait(); return f.File.Sync() }

func (f *laggingFile) SyncData() error { f.d.wait(); return f.File.SyncData() }

// TestRepack_TurnIsShort: a turn moves no more than a drain writes, and no more than one run once an append waits.
func TestRepack_TurnIsShort(t *testing.T) {
	t.Run("bytes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var moves atomic.Pointer[Engine]
			var turns []uint64 // bytes that were moved before a run
			e := openHostile(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if e := moves.Load(); e != nil && op.Kind == errorfs.OpCreate && path.Base(op.Path) == repackName {
					turns = append(turns, e.journal.keeper.moved.Load())
				}
				return nil
			})))
			defer func() { must(t, e.Close()) }()
			for range 20 {
				stays, goes := newWriter(t, e), newWriter(t, e)
				stays.append(16, 32<<10)
				goes.append(24, 32<<10)
				drainAll(t, e)
				must(t, removeTold(e, goes.x, 1))
			}
			moves.Store(e)
			repackAll(e)
			time.Sleep(time.Minute)
			synctest.Wait() // the keeper looks each second
			last, most := uint64(0), uint64(0)
			for _, moved := range append(turns, e.Vitals().MovedBytes) {
				most, last = max(most, moved-last), moved
			}
			t.Logf("%d KiB moved by %d runs, at most %d KiB by one turn", last>>10, len(turns), most>>10)
			if last < 2*leastRepack-runMost || most > leastRepack+runMost {
				t.Errorf("%d KiB moved, %d KiB by one turn", last>>10, most>>10)
			}
		})
	})
	t.Run("appends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			disk := &laggingDisk{FS: vfs.NewMem()}
			e, stay := manyRuns(t, disk)
			defer func() {
				disk.took.Store(0)
				must(t, e.Close())
			}()
			disk.took.Store(int64(5 * time.Millisecond))
			e.journal.keeper.garbage.Store(3 << 20) // there is more, but not twice as much
			e.journal.keeper.look()
			time.Sleep(time.Millisecond)
			w := newWriter(t, e)
			most := time.Duration(0)
			for range 2000 {
				began := time.Now()
				w.append(1, 10<<10)
				most = max(most, time.Since(began))
			}
			time.Sleep(2 * time.Second) // vitals are up to a second old
			n := e.Vitals().MovedBytes
			t.Logf("the slowest append took %s; %d KiB moved", most, n>>10)
			if most > turnMost/2 || n == 0 {
				t.Errorf("an append took %s, and %d KiB were moved", most, n>>10)
			}
			sound(t, e, stay...)
		})
	})
}

// TestRepack_AppendsMeanwhile: appends do not wait for a flush when several ranges with fresh deletions are moved.
func TestRepack_AppendsMeanwhile(t *testing.T) {
	t.Run("a flush", func(t *testing.T) { appendsMeanwhile(t, false) })
	t.Run("a repack", func(t *testing.T) { appendsMeanwhile(t, true) })
}

func appendsMeanwhile(t *testing.T, repack bool) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		e := openHostile(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if slow.Load() && op.Kind == errorfs.OpCreate && path.Ext(op.Path) == ".sst" && path.Base(path.Dir(op.Path)) == databaseDir {
				time.Sleep(2 * time.Second) // a flush
			}
			return nil
		})))
		defer func() {
			slow.Store(false)
			must(t, e.Close())
		}()
		var small, live, goes, between []*writer
		for range 8 {
			small, live = append(small, newWriter(t, e)), append(live, newWriter(t, e))
			goes, between = append(goes, newWriter(t, e)), append(between, newWriter(t, e))
		}
		w := newWriter(t, e)
		for i := range small {
			small[i].append(2, 4<<10)
			live[i].append(1, 10)
			goes[i].append(8, 10<<10)
		}
		drainAll(t, e)
		for _, b := range between {
			b.append(10, 10<<10)
		}
		drainAll(t, e)
		for _, x := range goes {
			must(t, removeTold(e, x.x, 1))
		}
		time.Sleep(3 * time.Second)
		must(t, e.db.Flush())
		for _, x := range small {
			must(t, x.seal(1)) // a removal would be cut out meanwhile
		}
		slow.Store(true)
		if repack {
			repackAll(e)
		} else if _, err := e.db.AsyncFlush(); err != nil {
			t.Fatal(err)
		}
		most := time.Duration(0)
		for range 100 { // the log has room for them
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			w.append(1, 10)
			most = max(most, time.Since(began))
		}
		time.Sleep(2 * time.Second) // vitals are up to a second old
		n := e.Vitals().MovedBytes
		if t.Logf("the slowest append took %s; %d bytes moved", most, n); most > time.Second {
			t.Errorf("an append took %s", most)
		}
		if repack == (n == 0) {
			t.Errorf("%d bytes were moved; %s", n, whereSpaceIs(e))
		}
	})
}

// TestRepack_LooksInVain: removals do not have all tables looked at when there is nothing to repack.
func TestRepack_LooksInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stats atomic.Int64
		e := openHostile(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpStat && path.Ext(op.Path) == ".sst" {
				stats.Add(1)
			}
			return nil
		})))
		defer func() { must(t, e.Close()) }()
		var goes []*writer
		for range 20 {
			keeps, o := newWriter(t, e), newWriter(t, e)
			keeps.append(30, 10<<10)
			o.append(10, 10<<10)
			goes = append(goes, o)
			drainAll(t, e)
		}
		for _, o := range goes[:10] {
			must(t, removeTold(e, o.x, 1))
		}
		time.Sleep(2 * time.Second)
		e.journal.keeper.garbage.Store(0)
		was := stats.Load()
		for _, o := range goes[10:] {
			must(t, removeTold(e, o.x, 1))
			time.Sleep(time.Second)
		}
		t.Logf("%d looks at sizes of tables for 10 removals", stats.Load()-was)
		if n := stats.Load() - was; n > 40 {
			t.Errorf("%d looks at sizes of tables for 10 removals", n)
		}
	})
}

// TestDebris_CopiesComeMeanwhile: a copy of an older extent comes while much debris is cut out, sweep after sweep.
func TestDebris_CopiesComeMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &laggingDisk{FS: vfs.NewMem()}
		e := openHostile(t, disk)
		defer func() {
			disk.took.Store(0)
			must(t, e.Close())
		}()
		comes := newExtent()
		var goes []*writer
		for range 1000 {
			goes = append(goes, newWriter(t, e))
			goes[len(goes)-1].append(1, 1<<10)
			newWriter(t, e) // stays between two that are removed
		}
		drainAll(t, e)
		for _, w := range goes {
			must(t, removeTold(e, w.x, 1))
		}
		disk.took.Store(int64(10 * time.Millisecond))
		notify(e.debris.many)
		time.Sleep(time.Second)
		began := time.Now()
		_, err := e.Fence(comes, 1)
		t.Logf("fenced after %s: %v", time.Since(began), err)
		if took := time.Since(began); err != nil || took > 10*time.Second {
			t.Errorf("fenced after %s: %v", took, err)
		}
	})
}

// TestRepack_SealMeanwhile: a seal that cuts batches off while these are moved leaves none of them.
func TestRepack_SealMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gate atomic.Pointer[chan struct{}]
		e := openHostile(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate && path.Base(op.Path) == repackName {
				if held := gate.Swap(nil); held != nil {
					<-*held
				}
			}
			return nil
		})))
		defer func() { must(t, e.Close()) }()
		x, other := newWriter(t, e), newWriter(t, e)
		x.append(5, 10<<10)
		other.append(30, 10<<10)
		drainAll(t, e)
		held := make(chan struct{})
		gate.Store(&held)
		e.journal.keeper.garbage.Store(0)
		must(t, removeTold(e, other.x, 1))
		time.Sleep(time.Second)
		if gate.Load() != nil {
			t.Fatal("nothing is being moved")
		}
		_, err := e.Fence(x.x, 1)
		must(t, err)
		end, err := wire.DecodeBatch(x.b[0])
		must(t, err)
		must(t, e.Seal(x.x.ID, 1, end.Checksum, 1))
		if n := records(t, e, x.x.ID); n != 1 {
			t.Fatalf("the database has %d batches of the sealed extent", n)
		}
		close(held)
		time.Sleep(time.Second)
		if n := records(t, e, x.x.ID); n != 1 {
			t.Errorf("the database has %d batches of an extent that was sealed behind the first", n)
		}
	})
}
