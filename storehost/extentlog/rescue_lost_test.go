package extentlog

import (
	"errors"
	"log/slog"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// manifestOf is the name of the list of tables of a store.
func manifestOf(t *testing.T, disk vfs.FS) string {
	t.Helper()
	name, err := atomicfs.ReadMarker(disk, "store/log", "manifest")
	must(t, err)
	return "store/log/" + name
}

// spoilManifest damages the list of tables so that the store has to be rescued.
func spoilManifest(t *testing.T, disk vfs.FS) {
	t.Helper()
	name := manifestOf(t, disk)
	b := readFile(t, disk, name)
	clear(b[20:40])
	writeFile(t, disk, name, b)
}

// TestRescue_OfALostTable: a table that is not there any more may have had rows. These count as lost, and not as rows
// that never were.
func TestRescue_OfALostTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ring := range []int64{largeRing} {
			disk, all := storedStore(t, ring, 3, false)
			for _, name := range filesOf(t, disk, true) {
				if path.Ext(name) != ".sst" {
					continue
				}
				damaged := killed(disk)
				must(t, damaged.Remove(name))
				log := new(damagedLog)
				out := checkStored(t, damaged, all, log)
				t.Logf("ring of %d without %s: %+v; log: %q", ring, name, out, log.lines)
			}
		}
	})
}

// flushes takes a copy of a disk before each table that a database makes.
type flushes struct {
	vfs.FS
	disk *vfs.MemFS
	mu   sync.Mutex
	on   bool
	all  []*vfs.MemFS
}

func newFlushes(disk *vfs.MemFS) *flushes {
	f := &flushes{disk: disk}
	f.FS = errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.on && op.Kind == errorfs.OpCreate && path.Ext(op.Path) == ".sst" && strings.Contains(op.Path, databaseDir+"/") {
			f.all = append(f.all, killed(disk))
		}
		return nil
	}))
	return f
}

// TestRescue_AfterACrashInAFlush: a flush makes several tables, and a crash in it leaves some of them. The number of
// the last group applied may be in one that is there, and rows of that group in one that is not.
func TestRescue_AfterACrashInAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newFlushes(vfs.NewCrashableMem())
		e, err := Open("store", Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler), Ring: largeRing})
		must(t, err)
		var all []*stored
		for i := range 6 {
			a := &stored{}
			a.x = newExtent()
			a.x.Disks = []core.DiskID{e.Identity().Disk}
			must(t, e.Open(a.x))
			a.opened = true
			var h wire.BatchHeader
			for range 3 {
				b := nextBatch(t, &h, 1000)
				appendBatch(t, e, a.x, b)
				a.batches = append(a.batches, b...)
			}
			a.last, a.sum = h.Last(), h.Checksum
			if i%2 == 0 {
				_, err := e.Fence(a.x, 0)
				must(t, err)
				must(t, e.Seal(a.x.ID, a.last, a.sum, 3))
				a.fenced, a.sealed = true, true
			}
			all = append(all, a)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		disk.mu.Lock()
		disk.on = true
		disk.mu.Unlock()
		must(t, e.Close())
		if len(disk.all) < 2 {
			t.Fatalf("the flush made %d tables", len(disk.all))
		}
		for i, crashed := range disk.all {
			if out := checkStored(t, killed(crashed), all, new(damagedLog)); out.whole != len(all) {
				t.Fatalf("crash before table %d, without damage: %+v", i, out)
			}
			spoilManifest(t, crashed)
			log := new(damagedLog)
			out := checkStored(t, crashed, all, log)
			t.Logf("crash before table %d, with a damaged manifest: %+v; log: %q", i, out, log.lines)
		}
	})
}

// TestRescue_OfAManifestThatIsGone: the tables are there, so no extent with an end lacks anything when the list of them
// is all zeros, as some file systems leave a file after a power cut, or when its first block is garbage.
func TestRescue_OfAManifestThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, all := storedStore(t, smallRing, 2, false)
		open := 0
		for _, a := range all {
			if !a.sealed && !a.removed {
				open++
			}
		}
		for what, spoil := range map[string]func([]byte) []byte{
			"zeros":   func(b []byte) []byte { clear(b); return b },
			"cut off": func(b []byte) []byte { return b[:10] },
			"garbage": func(b []byte) []byte {
				for i := range b {
					b[i] = byte(i*i>>3) | 1
				}
				return b
			},
		} {
			damaged := killed(disk)
			name := manifestOf(t, damaged)
			writeFile(t, damaged, name, spoil(readFile(t, damaged, name)))
			before := len(filesOf(t, damaged, true))
			log := new(damagedLog)
			out := checkStored(t, damaged, all, log)
			if out.unknown+out.incomplete+out.back > 0 || out.quarantined > open {
				t.Errorf("%s: %+v, and %d extents are open; %d files before, %d now; log: %q", what, out, open, before, len(filesOf(t, damaged, true)), log.lines)
			}
		}
	})
}

// TestSalvagedRows_OfAnExtentThatIsBack: a tombstone in a table that a merge has replaced, and that was not deleted
// yet, does not bury the extent that came back after it.
func TestSalvagedRows_OfAnExtentThatIsBack(t *testing.T) {
	x := newExtent()
	row, grave := string(extentKey(prefixRow, x.ID)), string(extentKey(prefixTombstone, x.ID))
	for what, stale := range map[string]salvagedRow{
		"with a number":    {number: 300, table: 3, value: []byte("removed")},
		"without a number": {number: 0, table: 7, value: []byte("removed")},
	} {
		s := newSalvagedRows()
		s.newest[grave] = stale
		s.newest[row] = salvagedRow{number: 0, table: 9, value: []byte("here")} // of the merge
		if s.buried(row, s.newest[row]) {
			t.Errorf("a stale tombstone %s buries a newer row", what)
		}
	}
}

// TestRescue_OfARowThatCannotBeDecoded: a row that was damaged in memory is in a sound block. The store starts without
// it.
func TestRescue_OfARowThatCannotBeDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		e, err := openStored(disk, new(damagedLog))
		must(t, err)
		x := newExtent()
		must(t, e.Open(x))
		synctest.Wait()
		must(t, e.db.Set(extentKey(prefixRow, x.ID), []byte("\x01{]"), pebble.NoSync))
		must(t, e.Close())
		for range 2 {
			log := new(damagedLog)
			e, err := openStored(disk, log)
			if err != nil {
				t.Fatalf("it does not start, and made a new database for that: %v, %v", log.has("a new one has what could be read"), err)
			}
			must(t, e.Close())
		}
	})
}

// measured is a disk with so much room, of which the database that is being made takes a part.
type measured struct {
	vfs.FS
	room uint64
}

func (d measured) GetDiskUsage(string) (vfs.DiskUsage, error) {
	const total = 1 << 30
	free := d.room
	names, err := d.List("store/" + unfinished)
	for _, name := range names {
		if info, e := d.Stat("store/" + unfinished + "/" + name); err == nil && e == nil {
			free -= min(free, uint64(info.Size()))
		}
	}
	return vfs.DiskUsage{TotalBytes: total, AvailBytes: free, UsedBytes: total - free}, nil
}

// TestRescue_AfterOneThatWasCutShort: what the first rescue wrote does not keep the second one from its room.
func TestRescue_AfterOneThatWasCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, _ := storedStore(t, largeRing, 1, true)
		damaged := garbled(t, disk)
		room := uint64(160 << 20)
		first := measured{killed(damaged), room}
		e, err := openStored(first, new(damagedLog))
		must(t, err)
		must(t, e.Close())
		must(t, damaged.MkdirAll("store/"+unfinished, 0o755))
		writeFile(t, damaged, "store/"+unfinished+"/000007.sst", make([]byte, 100<<20))
		e, err = openStored(measured{damaged, room}, new(damagedLog))
		if err != nil {
			t.Fatalf("with what is left of a rescue that a crash ended: %v", err)
		}
		must(t, e.Close())
	})
}

// TestRescue_OfAShortReplicaThatWasHereBefore: a table of an earlier life of the extent has its last batch. The replica
// lacks batches before that, and is not complete.
func TestRescue_OfAShortReplicaThatWasHereBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		open := func() *Engine {
			e, err := Open("store", Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler), Ring: smallRing})
			must(t, err)
			return e
		}
		e := open()
		x := newExtent()
		_, err := e.Fence(x, 1)
		must(t, err)
		var h wire.BatchHeader
		var batches [][]byte
		for range 5 {
			batches = append(batches, nextBatch(t, &h, 1000))
		}
		for _, b := range batches[:3] {
			_, err := e.Copy(x.ID, b)
			must(t, err)
		}
		if err := e.Seal(x.ID, 5, h.Checksum, 2); core.CodeOf(err) != core.CodeIncomplete {
			t.Fatalf("seal: %v, want %q", err, core.CodeIncomplete)
		}
		y := newExtent() // the log is drained
		must(t, e.Open(y))
		appendBatches(t, e, y, 100, 10<<10)
		synctest.Wait()
		// A rescue takes a table of the earlier life, and rows of others are lost.
		must(t, e.db.Set(batchKey(x.ID, 5), batches[4], pebble.NoSync))
		must(t, e.db.Set(keyRescued, salvageMark(0, rescuedRows), pebble.NoSync))
		must(t, e.Close())
		e = open()
		defer func() { must(t, e.Close()) }()
		s, err := e.State(x.ID)
		must(t, err)
		if _, err := e.Read(x.ID, 1, 5, 1<<20); s.complete() && !s.Damaged {
			t.Errorf("it is complete with %+v, and lacks batch 4: read %v", s, err)
		}
	})
}

// TestRescue_WithATableThatWasBeingMade: the database never had it, so nothing of it is lost.
func TestRescue_WithATableThatWasBeingMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, all := storedStore(t, smallRing, 2, true)
		spoilManifest(t, disk)
		want := checkStored(t, killed(disk), all, new(damagedLog))
		writeFile(t, disk, "store/log/999999.sst", make([]byte, 1000))
		if out := checkStored(t, disk, all, new(damagedLog)); out != want {
			t.Errorf("%+v, want %+v", out, want)
		}
	})
}

// TestRescue_OnAReturnToWriting: the list of tables is damaged while the store only reads, and it is not taken for its
// end when there is room again.
func TestRescue_OnAReturnToWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under, all := storedStore(t, smallRing, 2, false)
		disk := told{under, new(atomic.Uint64)}
		disk.free.Store(1 << 20)
		log := new(damagedLog)
		e, err := openStored(disk, log)
		must(t, err)
		defer func() { must(t, e.Close()) }()
		name := manifestOf(t, under)
		b := readFile(t, under, name)
		at := len(b) / 2
		b[at] ^= 1
		f, err := under.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
		must(t, err)
		_, err = f.WriteAt(b[at:at+1], int64(at))
		must(t, errors.Join(err, f.Close()))
		tables := len(filesOf(t, under, true))
		disk.free.Store(1 << 29)
		time.Sleep(5 * time.Second)
		for _, a := range all {
			if a.removed {
				continue
			}
			if s, err := e.State(a.x.ID); err != nil || !s.Damaged && !checkRecords(t, e, a) {
				t.Errorf("extent %s: %+v, %v; it was whole before one bit was flipped; %d files before, %d now", a.x.ID, s, err, tables, len(filesOf(t, under, true)))
			}
		}
	})
}

// TestRescue_OfALostPosition: the table with the last position of an open extent is gone. The extent does not end where
// an older one says.
func TestRescue_OfALostPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		open := func(disk vfs.FS) *Engine {
			e, err := Open("store", Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler), Ring: smallRing})
			must(t, err)
			return e
		}
		e := open(disk)
		x, y := newExtent(), newExtent()
		must(t, e.Open(x))
		must(t, e.Open(y))
		var h, other wire.BatchHeader
		for range 4 {
			for range 5 {
				appendBatch(t, e, x, nextBatch(t, &h, 100))
			}
			for range 60 { // the log is drained
				appendBatch(t, e, y, nextBatch(t, &other, 10<<10))
			}
			synctest.Wait()
		}
		must(t, e.Close())
		for _, name := range filesOf(t, disk, true) {
			if path.Ext(name) != ".sst" {
				continue
			}
			damaged := killed(disk)
			must(t, damaged.Remove(name))
			e := open(damaged)
			if s, err := e.State(x.ID); err == nil && s.Last != h.Last() && !s.Damaged {
				after, err := e.Fence(x, 1)
				t.Errorf("without %s it ends at %d of %d, and is fenced there: %d, damaged: %v, %v", name, s.Last, h.Last(), after.Last, after.Damaged, err)
			}
			must(t, e.Close())
		}
	})
}
