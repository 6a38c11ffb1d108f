package extentlog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// goOn checks that a store which was rescued works, and that the next start finds nothing.
func goOn(t *testing.T, disk vfs.FS, all []*stored, before outcome) {
	t.Helper()
	log := new(damagedLog)
	e, err := openStored(disk, log)
	if err != nil {
		t.Errorf("it does not start again: %v", err)
		return
	}
	if log.has("the database is damaged") || log.has("corrected") || log.has("are lost") {
		t.Errorf("the next start finds damage: %q", log.lines)
	}
	time.Sleep(lossMargin + time.Second)
	x := newExtent()
	if err := e.Open(x); err != nil {
		t.Errorf("open after a minute: %v", err)
	} else {
		appendBatches(t, e, x, 3, 1000)
	}
	must(t, e.Close())
	after := checkStored(t, disk, all, new(damagedLog))
	if after.quarantined != before.quarantined+before.unknown || after.unknown > 0 {
		t.Errorf("at the second start: %+v, and at the first one: %+v", after, before)
	}
}

// flipBit flips a bit of a file.
func flipBit(t *testing.T, disk vfs.FS, name string, bit int) {
	t.Helper()
	b := readFile(t, disk, name)
	b[bit/8] ^= 1 << (bit % 8)
	writeFile(t, disk, name, b)
}

// timesOf is how often a file is damaged. Pebble takes a second for each read of a damaged block that is full.
func timesOf(disk vfs.FS, name string) int {
	info, err := disk.Stat(name)
	switch {
	case err != nil, *flips == 1 && info.Size() > 32<<10:
		return 0
	case *flips == 1 && path.Ext(name) == ".sst" && (7*int(name[len(name)-6])+int(name[len(name)-5]))%8 > 0:
		return 0
	case strings.Contains(name, "MANIFEST"):
		return 4 * *flips
	}
	return *flips
}

// TestRescue_OneBitOfASmallFile: the store starts, and lacks nothing. If the bit is of a batch, its block is lost.
func TestRescue_OneBitOfASmallFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, all := storedStore(t, largeRing, 2, *flips > 1)
		whole := checkStored(t, killed(disk), all, new(damagedLog))
		if whole.quarantined+whole.unknown+whole.incomplete+whole.back > 0 {
			t.Fatalf("without damage: %+v", whole)
		}
		random := rand.New(rand.NewPCG(2, uint64(*flips)))
		corrected := 0
		for _, name := range filesOf(t, disk, true) {
			for range timesOf(disk, name) {
				damaged := killed(disk)
				bit := random.IntN(8 * len(readFile(t, disk, name)))
				flipBit(t, damaged, name, bit)
				log := new(damagedLog)
				out := checkStored(t, damaged, all, log)
				if path.Ext(name) != ".sst" && out != whole || out.unknown+out.incomplete+out.back > 0 || log.has("the database is damaged") {
					t.Errorf("%+v, want %+v; log: %q", out, whole, log.lines)
				}
				if log.has("corrected") {
					corrected++
					goOn(t, damaged, all, out)
				}
				if t.Failed() {
					t.Fatalf("after a flip of bit %d of %s", bit, name)
				}
			}
		}
		if corrected < 2 {
			t.Errorf("%d flips were corrected: too few to be a test", corrected)
		}
	})
}

// spoilFile damages a file in one of several ways, and says which.
func spoilFile(t *testing.T, disk vfs.FS, name string, random *rand.Rand) string {
	t.Helper()
	b := readFile(t, disk, name)
	at := random.IntN(len(b))
	what := "cut off"
	switch random.IntN(4) {
	case 0:
		b = b[:at]
	case 1:
		what = "zeros"
		clear(b[at:min(len(b), at+512)])
	default:
		what = "garbage"
		for i := at; i < min(len(b), at+64); i++ {
			b[i] = byte(random.Uint32())
		}
	}
	writeFile(t, disk, name, b)
	return fmt.Sprintf("%s of %s at %d", what, name, at)
}

// TestRescue_OfASpoiledFile: what can be read is kept, and what cannot be is known to be missing.
func TestRescue_OfASpoiledFile(t *testing.T) {
	oneAtATime(t)
	synctest.Test(t, func(t *testing.T) {
		for _, kill := range []bool{false, true} {
			ring := int64(smallRing)
			if kill {
				ring = largeRing
			}
			disk, all := storedStore(t, ring, 2, kill)
			random := rand.New(rand.NewPCG(3, uint64(*flips)))
			rescued := 0
			for _, name := range filesOf(t, disk, true) {
				for range timesOf(disk, name) {
					damaged := killed(disk)
					what := spoilFile(t, damaged, name, random)
					log := new(damagedLog)
					out := checkStored(t, damaged, all, log)
					if log.has("the database is damaged") {
						rescued++
						goOn(t, damaged, all, out)
					}
					if t.Logf("%s: %+v", what, out); t.Failed() {
						t.Fatalf("after %s; log: %q", what, log.lines)
					}
				}
			}
			if rescued < *flips {
				t.Errorf("%d rescues: too few to be a test", rescued)
			}
		}
	})
}

// TestRescue_OfAllFiles: one bit of each file is flipped, or each is spoiled.
func TestRescue_OfAllFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, all := storedStore(t, smallRing, 2, false)
		for seed := range uint64(4 * *flips) {
			if *flips == 1 && (seed%2 == 1 || underrace.On && seed > 0) {
				continue // it is slow
			}
			random := rand.New(rand.NewPCG(seed, 5))
			damaged := killed(disk)
			for _, name := range filesOf(t, disk, seed%2 == 0) {
				if seed%4 < 3 {
					flipBit(t, damaged, name, random.IntN(8*len(readFile(t, disk, name))))
				} else if random.IntN(3) == 0 {
					spoilFile(t, damaged, name, random)
				}
			}
			log := new(damagedLog)
			out := checkStored(t, damaged, all, log)
			goOn(t, damaged, all, out)
			if t.Logf("seed %d: %+v", seed, out); t.Failed() {
				t.Fatalf("seed %d; log: %q", seed, log.lines)
			}
		}
	})
}

// garbled is a disk of a store that is killed, and has a table with rows that cannot be corrected.
func garbled(t *testing.T, disk *vfs.MemFS) *vfs.MemFS {
	t.Helper()
	damaged := killed(disk)
	for _, name := range slices.Backward(filesOf(t, disk, true)) {
		b := readFile(t, disk, name)
		if at := bytes.Index(b, []byte(`"replicas":`)); at >= 0 && path.Ext(name) == ".sst" {
			f, err := damaged.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
			must(t, err)
			_, err = f.WriteAt(make([]byte, 20), int64(at))
			must(t, errors.Join(err, f.Sync(), f.Close()))
			return damaged
		}
	}
	t.Fatal("no table has rows")
	return nil
}

// TestRescue_CutShort: the power goes at any step of a rescue, and the next start finds all that the first one had.
func TestRescue_CutShort(t *testing.T) {
	oneAtATime(t)
	synctest.Test(t, func(t *testing.T) {
		disk, all := storedStore(t, largeRing, 2, true)
		damaged := garbled(t, disk)
		log := new(damagedLog)
		want := checkStored(t, killed(damaged), all, log)
		if !log.has("the database is damaged") || log.has("linked=0") || want.quarantined == 0 {
			t.Fatalf("%+v; log: %q", want, log.lines)
		}
		random := rand.New(rand.NewPCG(4, 4))
		cuts := 0
		for n := 1; ; n += 1 + 25 / *flips {
			d := newStormDisk(killed(damaged), random, n, func() func() { return func() {} })
			e, err := openStored(d.fs(), new(damagedLog))
			must(t, err)
			must(t, e.Close())
			if d.after == nil {
				break
			}
			cuts++
			if out := checkStored(t, d.after, all, new(damagedLog)); out.quarantined > want.quarantined || out.unknown+out.incomplete+out.back > 0 {
				t.Errorf("%+v, want no more quarantined than in %+v", out, want)
			}
			if t.Failed() {
				t.Fatalf("cut at change %d", n)
			}
		}
		if cuts < 4 {
			t.Errorf("%d cuts: too few to be a test", cuts)
		}
	})
}

// TestRescue_OnAFullDisk: nothing is lost when there is no room for a new database.
func TestRescue_OnAFullDisk(t *testing.T) {
	var damaged *vfs.MemFS
	var all []*stored
	synctest.Test(t, func(t *testing.T) {
		var disk *vfs.MemFS
		disk, all = storedStore(t, largeRing, 1, true)
		damaged = garbled(t, disk)
	})
	if _, err := openStored(filled{killed(damaged)}, new(damagedLog)); core.CodeOf(err) != core.CodeNoSpace {
		t.Errorf("on a disk that says that it is full: %v, want %q", err, core.CodeNoSpace)
	}
	for _, room := range []int64{0, 3, 6, 12} { // changes of files
		left := new(atomic.Int64)
		left.Store(room)
		full := errorfs.Wrap(killed(damaged), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind != errorfs.OpCreate && op.Kind != errorfs.OpFileWrite || !strings.Contains(op.Path, unfinished) {
				return nil
			}
			if left.Add(-1) < 0 {
				return syscall.ENOSPC
			}
			return nil
		}))
		if _, err := openStored(full, new(damagedLog)); core.CodeOf(err) != core.CodeNoSpace {
			t.Errorf("with room for %d changes: %v, want %q", room, err, core.CodeNoSpace)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		if out := checkStored(t, damaged, all, new(damagedLog)); out.unknown+out.incomplete > 0 {
			t.Errorf("once there is room: %+v", out)
		}
	})
}

// filled is a disk that has no room, and says so.
type filled struct{ vfs.FS }

func (filled) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{TotalBytes: 1 << 40, UsedBytes: 1 << 40}, nil
}

// TestRescue_OnlyIfWanted: who inspects a damaged store leaves it as it is.
func TestRescue_OnlyIfWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, _ := storedStore(t, largeRing, 1, true)
		damaged := []*vfs.MemFS{garbled(t, disk), killed(disk)}
		manifest, err := atomicfs.ReadMarker(disk, "store/log", "manifest")
		must(t, err)
		flipBit(t, damaged[1], "store/log/"+manifest, 100)
		for _, d := range damaged {
			_, err := Open("store", Options{FS: d, Log: slog.New(slog.DiscardHandler), KeepDamage: true})
			if core.CodeOf(err) != core.CodeCorrupt {
				t.Errorf("open: %v, want %q", err, core.CodeCorrupt)
			}
			if names, err := d.List("store"); err != nil || slices.Contains(names, unfinished) || slices.Contains(names, replaced) {
				t.Errorf("the directory has %q, %v", names, err)
			}
		}
	})
}

// TestRescue_NotOfANewerFormat: a database of a newer version is refused, and nothing of it changes.
func TestRescue_NotOfANewerFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, _ := storedStore(t, largeRing, 1, true)
		writeFile(t, disk, "store/log/marker.format-version.000099.999", nil)
		manifest, err := atomicfs.ReadMarker(disk, "store/log", "manifest")
		must(t, err)
		writeFile(t, disk, "store/log/"+manifest, []byte("in another format"))
		before := filesOf(t, disk, false)
		if _, err := openStored(disk, new(damagedLog)); core.CodeOf(err) != core.CodeNewerFormat {
			t.Errorf("open: %v, want %q", err, core.CodeNewerFormat)
		}
		if after := filesOf(t, disk, false); !slices.Equal(before, after) {
			t.Errorf("it has %q, and had %q", after, before)
		}
	})
}

// TestRescue_Identity: a store of an earlier version gets the file with its identity. It starts with one copy of it,
// and not when all that names the store is gone.
func TestRescue_Identity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, all := storedStore(t, largeRing, 1, false)
		must(t, disk.Remove("store/"+identityFile))
		checkStored(t, disk, all, new(damagedLog))
		whole := readFile(t, disk, "store/"+identityFile)
		if is, ok := decodeEssentials(whole); !ok || !is.complete() || string(is.owner[idLen:]) != "s1" {
			t.Fatalf("the file has %+v, %v", is, ok)
		}
		damaged := killed(disk)
		for _, name := range filesOf(t, disk, true) {
			if path.Ext(name) == ".sst" {
				writeFile(t, damaged, name, nil)
			}
		}
		for _, at := range []int{0, 9, identityCopy + 5} {
			again := killed(damaged)
			flipBit(t, again, "store/"+identityFile, 8*at)
			e, err := openStored(again, new(damagedLog))
			must(t, err)
			if n := e.Identity().Disk; n != all[0].x.Disks[0] {
				t.Errorf("the disk is %s, want %s", n, all[0].x.Disks[0])
			}
			must(t, e.Close())
		}
		flipBit(t, damaged, "store/"+identityFile, 8*20)
		flipBit(t, damaged, "store/"+identityFile, 8*(identityCopy+20))
		if _, err := openStored(damaged, new(damagedLog)); core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("without an identity: %v, want %q", err, core.CodeCorrupt)
		}
	})
}
