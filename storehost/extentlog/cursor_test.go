package extentlog

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// readPiece answers how many bytes come from next on, and what is next then.
func readPiece(t testing.TB, e *Engine, x core.Extent, next, upTo core.Seq, maxBytes int) (int, core.Seq) {
	t.Helper()
	b, err := e.Read(x.ID, next, upTo, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	n := len(b)
	for len(b) > 0 {
		var one wire.Batch
		if one, b, err = wire.NextBatch(b); err != nil {
			t.Fatal(err)
		}
		if one.Base != next {
			t.Fatalf("extent %s goes on at %d, want %d", x.ID, one.Base, next)
		}
		next = one.Last() + 1
	}
	return n, next
}

// count is of cursors that grow old: who wants to see a number of them stays in a bubble, where no time passes
// meanwhile.
func (s *cursors) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

func TestCursors_AreForReadersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, "store", vfs.NewMem())
		all, heads := backlog(t, e, 2, 6, largeBatches)
		x, last := all[0], heads[0].Last()
		const piece = 256 << 10
		_, next := readPiece(t, e, x, 1, last, piece)
		if n := e.cursors.count(); n != 1 {
			t.Fatalf("after the first piece of a reader: %d cursors, want 1", n)
		}
		if _, again := readPiece(t, e, x, 1, last, piece); again != next {
			t.Fatalf("a second reader got up to %d, the first one up to %d", again, next)
		}
		if n := e.cursors.count(); n != 1 {
			t.Fatalf("after two readers ended at one place: %d cursors, want 1", n)
		}
		for next <= last {
			_, next = readPiece(t, e, x, next, last, piece)
		}
		if n := e.cursors.count(); n != 0 {
			t.Fatalf("at the end of the extent: %d cursors, want 0", n)
		}
	})
}

func TestCursors_SeeWhatIsAppendedLater(t *testing.T) {
	e := newEngine(t, "store", vfs.NewMem())
	all, heads := backlog(t, e, 1, 4, largeBatches)
	x, h := all[0], heads[0]
	_, next := readPiece(t, e, x, 1, h.Last(), 128<<10)
	for range 3 {
		appendBatch(t, e, x, nextBatch(t, &h, 1000))
	}
	for next <= h.Last() {
		_, next = readPiece(t, e, x, next, h.Last(), 128<<10)
	}
}

// TestCursors_NotBeyondTheSeal: a reader that was in the middle does not see what is cut off, though its cursor does.
func TestCursors_NotBeyondTheSeal(t *testing.T) {
	e := newEngine(t, "store", vfs.NewMem())
	all, heads := backlog(t, e, 1, 4, largeBatches)
	x, last := all[0], heads[0].Last()
	_, next := readPiece(t, e, x, 1, last, 64<<10)
	if _, err := e.Fence(x, 1); err != nil {
		t.Fatal(err)
	}
	end, err := e.batchAt(e.extent(x.ID), next)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Seal(x.ID, end.Last(), end.Checksum, 1); err != nil {
		t.Fatal(err)
	}
	if n, to := readPiece(t, e, x, next, last, 1<<20); n == 0 || to != next+1 {
		t.Errorf("%d bytes up to %d, want the one batch up to the seal at %d", n, to-1, next)
	}
	if n, to := readPiece(t, e, x, next+1, last, 1<<20); n != 0 {
		t.Errorf("%d bytes beyond the seal, up to %d", n, to-1)
	}
}

// TestCursors_LookFurther: who goes on in order finds the tables ever less often.
func TestCursors_LookFurther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, "store", vfs.NewMem())
		all, heads := backlog(t, e, 1, 30, largeBatches)
		x, last := all[0], heads[0].Last()
		var windows []int
		for next := core.Seq(1); next <= last; {
			_, next = readPiece(t, e, x, next, last, 128<<10)
			if c := e.cursors.open[place{e.extent(x.ID), next}]; c != nil && (len(windows) == 0 || windows[len(windows)-1] != c.window) {
				windows = append(windows, c.window)
			}
		}
		if want := []int{1, 2, 4, 8, 16}; !slices.Equal(windows, want) {
			t.Errorf("pieces seen ahead: %v, want %v", windows, want)
		}
	})
}

func TestCursors_Bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, "store", vfs.NewMem())
		all, heads := backlog(t, e, maxCursors+5, 1, 6<<10)
		for i, x := range all {
			readPiece(t, e, x, 1, heads[i].Last(), 1<<10)
		}
		if n := e.cursors.count(); n != maxCursors {
			t.Errorf("%d cursors, want %d", n, maxCursors)
		}
		// Those of removed extents go at once: they would keep its space.
		if err := removeTold(e, all[0], 1); err != nil {
			t.Fatal(err)
		}
		if n := e.cursors.count(); n != maxCursors-1 {
			t.Errorf("after a removal: %d cursors, want %d", n, maxCursors-1)
		}
		time.Sleep(3 * cursorAge)
		if n := e.cursors.count(); n != 0 {
			t.Errorf("after %s: %d cursors, want none", 3*cursorAge, n)
		}
		s := cursors{open: make(map[place]*cursor)}
		for next := range core.Seq(3) {
			s.keep(&cursor{place: place{next: next}, ahead: maxAhead / 2})
		}
		if s.count() != 2 || s.ahead != maxAhead {
			t.Errorf("%d cursors look %d bytes ahead, want 2 and %d", s.count(), s.ahead, maxAhead)
		}
		if s.take(place{next: 1}); s.ahead != maxAhead/2 {
			t.Errorf("%d bytes ahead after one was taken, want %d", s.ahead, maxAhead/2)
		}
	})
}

// BenchmarkRead_Backlog reads an extent that is spread over many overlapping tables, a piece an operation.
func BenchmarkRead_Backlog(b *testing.B) {
	e, err := Open("store", Options{Store: "s1", FS: vfs.NewMem()})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	all, heads := backlog(b, e, 4, 60, largeBatches)
	next := core.Seq(1)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if n, next = readPiece(b, e, all[0], next, heads[0].Last(), 256<<10); next > heads[0].Last() {
			next = 1
		}
		b.SetBytes(int64(n))
	}
}
