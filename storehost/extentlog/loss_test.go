package extentlog

import (
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// told is what a store answered of an extent before it was killed.
type answered struct {
	x       core.Extent
	last    core.Seq
	sum     uint32
	opened  bool
	fenced  bool
	sealed  bool
	removed bool
}

// loggedStore is a store that was killed when it was idle, and what it had answered. Some of its rows are in tables.
func loggedStore(t *testing.T) (disk *vfs.MemFS, all []answered) {
	t.Helper()
	disk = vfs.NewCrashableMem()
	for run := range 2 {
		e, err := Open("store", Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler), Ring: 1 << 20})
		must(t, err)
		synctest.Wait() // the rows of the run before are in tables, and none of this one
		var open []answered
		for i := range 6 {
			a := answered{x: newExtent()}
			if a.x.Disks = []core.DiskID{e.Identity().Disk}; i%6 != 5 {
				must(t, e.Open(a.x))
				a.opened = true
			}
			var h wire.BatchHeader
			for range i % 6 {
				if !a.opened {
					break
				}
				appendBatch(t, e, a.x, recordsBatch(t, &h, 2, 1+700*i))
			}
			open = append(open, a)
		}
		for i := range open {
			a := &open[i]
			if i%6 > 1 {
				_, err := e.Fence(a.x, 0)
				must(t, err)
				a.fenced = true
			}
			s, err := e.State(a.x.ID)
			if !a.opened && !a.fenced {
				continue
			}
			must(t, err)
			if a.last, a.sum = s.Last, s.Checksum; i%6 > 2 {
				must(t, e.Seal(a.x.ID, s.Last, s.Checksum, 3))
				a.sealed = true
			}
			if i == 4 {
				must(t, e.Remove(a.x.ID, 3))
				a.removed = true
			}
		}
		all = append(all, open...)
		time.Sleep(time.Second) // it is marked
		synctest.Wait()
		if run == 1 {
			disk = killed(disk)
		}
		must(t, e.Close())
	}
	return disk, all
}

// checkAnswers opens a store on a damaged disk, and checks that it takes nothing for not said that it had answered.
func checkAnswers(t *testing.T, disk vfs.FS, all []answered) (quarantined int) {
	t.Helper()
	e, err := Open("store", Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler), Ring: 1 << 20})
	if err != nil {
		t.Errorf("it does not start: %v", err)
		return 0
	}
	defer func() { must(t, e.Close()) }()
	e.opensFrom = time.Time{}
	for _, a := range all {
		s, err := e.State(a.x.ID)
		if code := core.CodeOf(e.Open(a.x)); code != core.CodeExists && code != core.CodeFenced {
			t.Errorf("extent %s: opened again: %q, it was %+v", a.x.ID, code, a)
		}
		switch {
		case a.removed:
			continue // it may be back
		case core.CodeOf(err) == core.CodeNotFound:
			s, err = e.Fence(a.x, 9)
			if err != nil || !s.Damaged {
				t.Errorf("extent %s: fenced anew: %+v, %v; it was %+v", a.x.ID, s, err, a)
			}
			quarantined++
			continue
		case s.Damaged:
			quarantined++
			if err := readAll(e, a.x.ID); s.Last > 0 && core.CodeOf(err) != core.CodeCorrupt {
				t.Errorf("extent %s: read of a quarantined one: %v", a.x.ID, err)
			}
			continue
		case s.Last != a.last || s.Checksum != a.sum || a.fenced && !s.Fenced || a.sealed && !s.Sealed:
			t.Errorf("extent %s: it is %+v, and was %+v", a.x.ID, s, a)
		}
		if v, err := e.Verify(t.Context(), a.x.ID); err != nil || !v.Sound {
			t.Errorf("extent %s: %+v, %v; it is not quarantined", a.x.ID, v, err)
		}
	}
	return quarantined
}

// TestLoss_OfAnyByte: each region of a small log is damaged.
func TestLoss_OfAnyByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, all := loggedStore(t)
		if n := checkAnswers(t, killed(disk), all); n != 0 {
			t.Fatalf("%d extents are quarantined without damage", n)
		}
		quarantined, flips := 0, 0
		for _, name := range segmentsOf(t, disk) {
			b := readFile(t, disk, name)
			for at := 0; at < len(b); {
				step := 997 // of bodies
				if in := at % (4 << 10); in < 96 {
					step = 5 // of headers
				}
				if zero := at%(4<<10) == 0 && isZero(b[at:min(len(b), at+4<<10)]); zero {
					at += 4 << 10
					continue
				}
				damaged := killed(disk)
				f := append([]byte{}, b...)
				f[at] ^= 1 << (at % 8)
				writeFile(t, damaged, name, f)
				quarantined += min(checkAnswers(t, damaged, all), 1)
				if flips++; t.Failed() {
					t.Fatalf("after a flip at %d of %s", at, name)
				}
				at += step
			}
		}
		if t.Logf("of %d flips %d quarantined something", flips, quarantined); quarantined < flips/10 {
			t.Error("that is too few to be a test")
		}
	})
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// TestLoss_AtRandom: bits flip, blocks are lost, and segments are cut off.
func TestLoss_AtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, all := loggedStore(t)
		names := segmentsOf(t, disk)
		for seed := range uint64(1000) {
			random := rand.New(rand.NewPCG(seed, 3))
			damaged := killed(disk)
			name := names[random.IntN(len(names))]
			b := readFile(t, damaged, name)
			used := len(b)
			for used > 4<<10 && isZero(b[used-4<<10:used]) {
				used -= 4 << 10
			}
			at := random.IntN(used)
			if used <= 4<<10 { // a new one
				continue
			}
			what := random.IntN(4)
			switch what {
			case 0, 1:
				b[at] ^= 1 << random.IntN(8)
			case 2:
				mark := used - 4096 // without it, the last group looks torn
				clear(b[min(at/4096*4096, mark):min(mark, at/4096*4096+4096*(1+random.IntN(3)))])
			case 3:
				b = b[:max(at, 4<<10)] // a file that is gone, or has no header, is not known to have been there
			}
			writeFile(t, damaged, name, b)
			checkAnswers(t, damaged, all)
			if t.Failed() {
				t.Fatalf("seed %d: kind %d at %d of %s", seed, what, at, name)
			}
		}
	})
}
