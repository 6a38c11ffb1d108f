package extentlog

import (
	"fmt"
	"math/rand/v2"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
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

// TestRescue_OneBitOfASmallFile: the store starts, and lacks nothing. If the bit is of a batch, its block is lost.
func TestRescue_OneBitOfASmallFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, all := storedStore(t, 2, *flips > 1)
		whole := checkStored(t, killed(disk), all, new(damagedLog))
		if whole.quarantined+whole.unknown+whole.incomplete+whole.back > 0 {
			t.Fatalf("without damage: %+v", whole)
		}
		random := rand.New(rand.NewPCG(2, uint64(*flips)))
		corrected := 0
		for _, name := range filesOf(t, disk, true) {
			for range *flips {
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
		if corrected < 5 {
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
	synctest.Test(t, func(t *testing.T) {
		for _, kill := range []bool{false, true} {
			disk, all := storedStore(t, 2, kill)
			random := rand.New(rand.NewPCG(3, uint64(*flips)))
			rescued := 0
			for _, name := range filesOf(t, disk, true) {
				for range *flips {
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
			if rescued < 3 {
				t.Errorf("%d rescues: too few to be a test", rescued)
			}
		}
	})
}

// TestRescue_OfAllFiles: one bit of each file is flipped, or each is spoiled.
func TestRescue_OfAllFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, all := storedStore(t, 2, false)
		for seed := range uint64(4 * *flips) {
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
