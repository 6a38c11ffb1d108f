package extentlog

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// TestCursors_AnyReader: whoever reads what in which order gets whole batches, at least one where one fits, none too
// many.
func TestCursors_AnyReader(t *testing.T) {
	e := newEngine(t, "store", vfs.NewMem())
	x := newExtent()
	if err := e.Open(x); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	var h wire.BatchHeader
	holds := []core.Seq{0} // the first seq of the batch that holds a seq
	for i := range 120 {
		size := 10
		if i/30%2 == 1 {
			size = 3 << 10
		}
		appendBatch(t, e, x, recordsBatch(t, &h, 1+random.IntN(4), size))
		for range h.Count {
			holds = append(holds, h.Base)
		}
		if i%20 == 19 {
			drainAll(t, e)
		}
	}
	ends := func(seq core.Seq) bool { return seq == h.Last() || holds[seq+1] != holds[seq] }
	rapid.Check(t, func(t *rapid.T) {
		next := make([]core.Seq, 3)
		t.Repeat(map[string]func(*rapid.T){
			"read": func(t *rapid.T) {
				r := rapid.IntRange(0, len(next)-1).Draw(t, "reader")
				if next[r] == 0 || next[r] > h.Last() || rapid.IntRange(0, 9).Draw(t, "jump") == 0 {
					next[r] = core.Seq(rapid.IntRange(1, int(h.Last())).Draw(t, "from"))
				}
				upTo := rapid.OneOf(rapid.Just(h.Last()), rapid.Just(core.Seq(math.MaxUint64)), rapid.Map(rapid.IntRange(int(next[r]), int(h.Last())), func(n int) core.Seq { return core.Seq(n) })).Draw(t, "up to")
				most := rapid.SampledFrom([]int{0, 1, 1000, 8 << 10, 32 << 10, 128 << 10, math.MaxInt}).Draw(t, "most")
				b, err := e.Read(x.ID, next[r], upTo, most)
				if err != nil {
					t.Fatal(err)
				}
				total, at := len(b), holds[next[r]]
				for n := 0; len(b) > 0; n++ {
					var one wire.Batch
					if one, b, err = wire.NextBatch(b); err != nil || one.Base != at || one.Last() > upTo {
						t.Fatalf("batch %d of %d at %d, want %d, none beyond %d: %v", one.Base, one.Count, at, at, upTo, err)
					}
					if at = one.Last() + 1; n > 0 && total > most {
						t.Fatalf("%d bytes, want at most %d", total, most)
					}
				}
				if total == 0 {
					for seq := next[r]; seq <= min(upTo, h.Last()); seq++ {
						if ends(seq) {
							t.Fatalf("nothing from %d up to %d, although a batch ends at %d", next[r], upTo, seq)
						}
					}
					at = next[r]
				}
				next[r] = at
			},
		})
	})
}

// TestCursors_RemovalsAndClosing: iterators of readers in order are closed before their database is.
func TestCursors_RemovalsAndClosing(t *testing.T) {
	for range 5 {
		e, err := Open("store", Options{Store: "s1", FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		var all []core.Extent
		var last core.Seq
		for range 4 {
			x := newExtent()
			if err := e.Open(x); err != nil {
				t.Fatal(err)
			}
			last = appendBatches(t, e, x, 60, 10<<10)
			all = append(all, x)
		}
		var readers sync.WaitGroup
		for i := range 8 {
			readers.Go(func() {
				for round := 0; ; round++ {
					for next := core.Seq(1); next <= last; next++ {
						b, err := e.Read(all[i%len(all)].ID, next, last, 30<<10)
						switch code := core.CodeOf(err); {
						case code == core.CodeNotFound || code == core.CodeUnavailable:
							return
						case err != nil || len(b) == 0:
							t.Errorf("%d bytes, %v", len(b), err)
							return
						}
					}
				}
			})
		}
		for _, x := range all[:2] {
			if err := removeTold(e, x, 1); err != nil {
				t.Error(err)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		readers.Wait()
	}
}
