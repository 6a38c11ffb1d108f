package extentlog

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// stored is an extent of a store that was stopped, and what the store had answered.
type stored struct {
	answered
	batches []byte
}

// damagedLog collects the lines at level error.
type damagedLog struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func (l *damagedLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level < slog.LevelError {
		return nil
	}
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

func (l *damagedLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *damagedLog) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line string) bool { return strings.Contains(line, part) })
}

// flips is how often each file is damaged by the tests of rescues.
var flips = flag.Int("flips", 1, "damages of each file in the tests of rescues")

// Rings of stored stores: in the small one all that is old has been drained, in the large one drains make tables.
const (
	smallRing = 256 << 10
	largeRing = 5 << 20
)

func openStored(disk vfs.FS, log *damagedLog) (*Engine, error) {
	return Open("store", Options{Store: "s1", FS: disk, Log: slog.New(log), Ring: largeRing})
}

// mixedBatch makes a batch of records with random payloads.
func mixedBatch(t testing.TB, h *wire.BatchHeader, random *rand.Rand, records, size int) []byte {
	t.Helper()
	b := make([]byte, wire.BatchHeaderLen)
	for range records {
		payload := make([]byte, size)
		for i := range payload {
			payload[i] = byte(random.Uint32())
		}
		var err error
		b, err = wire.AppendRecord(b, &wire.Record{Payload: payload})
		must(t, err)
	}
	base := core.Seq(1)
	if h.Count > 0 {
		base = h.Last() + 1
	}
	*h = wire.BatchHeader{Count: uint32(records), Base: base, Checksum: wire.ExtendChecksum(h.Checksum, b[wire.BatchHeaderLen:])}
	wire.PutBatchHeader(b, *h)
	return b
}

// storedStore is a store that was stopped, or killed, after several turns of its log: with extents that are open,
// fenced, sealed, cut off and removed, of small and large batches, and of timers.
func storedStore(t testing.TB, ring int64, runs int, kill bool) (disk *vfs.MemFS, all []*stored) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, uint64(runs)))
	bulk := 120 // batches of the largest extent
	if ring == largeRing {
		bulk = 350
	}
	disk = vfs.NewCrashableMem()
	for run := range runs {
		e, err := Open("store", Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler), Ring: ring})
		must(t, err)
		var open []*stored
		for i := range 14 {
			a := &stored{}
			a.x = newExtent()
			a.x.Disks = []core.DiskID{e.Identity().Disk}
			if i%4 == 3 {
				a.x.Kind = core.KindTimer
			}
			must(t, e.Open(a.x))
			a.opened = true
			n, records, size := 1+i%5, 1+i%3, 10+random.IntN(3000)
			if i == 13 {
				n, records, size = bulk, 1, 13<<10 // it gets tables of its own
			}
			var h, end wire.BatchHeader
			for range n {
				b := mixedBatch(t, &h, random, records, size)
				appendBatch(t, e, a.x, b)
				if a.batches, end = append(a.batches, b...), h; i == 12 || random.IntN(3) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			a.last, a.sum = end.Last(), end.Checksum
			if i == 6 || i == 7 { // the seal cuts the last batch off
				appendBatch(t, e, a.x, mixedBatch(t, &h, random, 1, 500))
			}
			open = append(open, a)
		}
		for i, a := range open {
			if i%7 == 2 && run == runs-1 {
				continue
			}
			_, err := e.Fence(a.x, 0)
			must(t, err)
			a.fenced = true
			if i%7 == 3 {
				continue
			}
			must(t, e.Seal(a.x.ID, a.last, a.sum, 3))
			a.sealed = true
			if i == 4 || i == 11 {
				must(t, e.Remove(a.x.ID, 3))
				a.removed = true
			}
		}
		for _, a := range open {
			if !a.sealed { // what is beyond the end counts
				s, err := e.State(a.x.ID)
				must(t, err)
				a.last, a.sum = s.Last, s.Checksum
				b, err := e.Read(a.x.ID, 1, s.Last, 64<<20)
				must(t, err)
				a.batches = slices.Clone(b)
			}
		}
		all = append(all, open...)
		time.Sleep(10 * time.Second) // it is marked, and removed extents are cut out
		synctest.Wait()
		if kill && run == runs-1 {
			disk = killed(disk)
		}
		must(t, e.Close())
	}
	return disk, all
}

// found is what became of the extents of a store.
type outcome struct{ whole, quarantined, unknown, incomplete, back int }

// checkStored opens a store on a damaged disk, and checks that it serves nothing but what was written, and takes
// nothing for not said that it had answered.
func checkStored(t *testing.T, disk vfs.FS, all []*stored, log *damagedLog) (out outcome) {
	t.Helper()
	e, err := openStored(disk, log)
	if err != nil {
		t.Errorf("it does not start: %v", err)
		return out
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	for _, a := range all {
		s, err := e.State(a.x.ID)
		switch {
		case a.removed && err != nil:
			continue
		case a.removed:
			if out.back++; !s.Fenced && !s.Damaged {
				t.Errorf("extent %s is removed, and takes appends: %+v", a.x.ID, s)
			}
		case core.CodeOf(err) == core.CodeNotFound:
			if s, err := e.Fence(a.x, 9); err != nil || !s.Damaged {
				t.Errorf("extent %s is unknown, and fenced anew: %+v, %v", a.x.ID, s, err)
			}
			out.unknown++
			continue
		case err != nil:
			t.Errorf("extent %s: %v", a.x.ID, err)
			continue
		case s.Damaged:
		case s.Sealed && s.Last < s.L:
			out.incomplete++
		case s.Last != a.last || s.Checksum != a.sum || s.Fenced != a.fenced || s.Sealed != a.sealed:
			t.Errorf("extent %s is %+v, and was %+v", a.x.ID, s, a.answered)
		}
		if checkRecords(t, e, a) {
			out.whole++
		} else {
			out.quarantined++
		}
		if code := core.CodeOf(e.Open(a.x)); code != core.CodeExists && code != core.CodeFenced && code != core.CodeUnavailable {
			t.Errorf("extent %s is opened again: %q", a.x.ID, code)
		}
	}
	return out
}

// checkRecords reads an extent; whole is false when it is quarantined.
func checkRecords(t *testing.T, e *Engine, a *stored) (whole bool) {
	t.Helper()
	s, err := e.State(a.x.ID)
	must(t, err)
	rest := a.batches
	for from := core.Seq(1); from <= s.Last; {
		b, err := e.Read(a.x.ID, from, s.Last, 1<<20)
		if core.CodeOf(err) == core.CodeCorrupt {
			break
		}
		if err != nil || len(b) == 0 || !bytes.HasPrefix(rest, b) {
			t.Errorf("extent %s: read from %d of %d: %d bytes, %v; as written: %v", a.x.ID, from, s.Last, len(b), err, bytes.HasPrefix(rest, b))
			return false
		}
		rest = rest[len(b):]
		for len(b) > 0 {
			next, more, err := wire.NextBatch(b)
			must(t, err)
			from, b = next.Last()+1, more
		}
	}
	if s, err = e.State(a.x.ID); err != nil || s.Damaged {
		return false
	}
	if len(rest) > 0 && s.Last == a.last {
		t.Errorf("extent %s lacks %d bytes", a.x.ID, len(rest))
	}
	if a.x.Kind == core.KindTimer {
		return checkTimers(t, e, a, s)
	}
	return true
}

// checkTimers reads the index of an extent; whole is false when it is quarantined.
func checkTimers(t *testing.T, e *Engine, a *stored, s State) (whole bool) {
	t.Helper()
	seen := core.Seq(0)
	for run := (DueRun{More: true}); run.More; {
		var err error
		run, err = e.Due(a.x.ID, DueQuery{After: run.Passed, Start: run.Start, Until: 1 << 60, UpTo: s.Last, MaxBytes: 1 << 20}, func(DueRecord) { seen++ })
		if core.CodeOf(err) == core.CodeCorrupt {
			return false
		}
		if err != nil {
			t.Errorf("extent %s: due: %v", a.x.ID, err)
			return false
		}
	}
	if seen != s.Last {
		t.Errorf("extent %s: the index has %d of %d timers", a.x.ID, seen, s.Last)
	}
	return true
}

// filesOf are the files of a store, but for those of the log, if only small ones are wanted.
func filesOf(t *testing.T, disk vfs.FS, small bool) (names []string) {
	t.Helper()
	for _, dir := range []string{"store", "store/log", "store/ring"} {
		if small && dir == "store/ring" {
			continue
		}
		all, err := disk.List(dir)
		must(t, err)
		for _, name := range all {
			name = disk.PathJoin(dir, name)
			info, err := disk.Stat(name)
			must(t, err)
			if !info.IsDir() && info.Size() > 0 {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}
