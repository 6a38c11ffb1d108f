package acklevel_test

import (
	"math/rand/v2"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// naive is a set of seqs with a window beside it.
type naive struct {
	w    acklevel.Window
	done []bool // by seq
}

func (n *naive) ack(t *rapid.T, base core.Seq, count uint64) {
	fresh := uint64(0)
	for seq := base; seq < base+core.Seq(count); seq++ {
		for core.Seq(len(n.done)) <= seq {
			n.done = append(n.done, false)
		}
		if !n.done[seq] {
			n.done[seq] = true
			fresh++
		}
	}
	if got := n.w.AckRange(base, count); got != fresh {
		t.Fatalf("AckRange(%d, %d): got %d fresh, want %d", base, count, got, fresh)
	}
}

// check compares all that a window tells.
func (n *naive) check(t *rapid.T, w *acklevel.Window) {
	frontier, top, above := core.Seq(0), core.Seq(0), uint64(0)
	var want []acklevel.Range
	for seq := core.Seq(1); seq < core.Seq(len(n.done)); seq++ {
		if !n.done[seq] {
			continue
		}
		top = seq
		if frontier == seq-1 {
			frontier = seq
			continue
		}
		above++
		if k := len(want); k > 0 && want[k-1].Last == seq-1 {
			want[k-1].Last = seq
		} else {
			want = append(want, acklevel.Range{First: seq, Last: seq})
		}
	}
	if w.Frontier() != frontier || w.Top() != top || w.Above() != above {
		t.Fatalf("got frontier %d, top %d, %d above, want %d, %d, %d", w.Frontier(), w.Top(), w.Above(), frontier, top, above)
	}
	if diff := cmp.Diff(want, ranges(w)); diff != "" {
		t.Fatalf("ranges (-want +got):\n%s", diff)
	}
	next := core.Seq(len(n.done))
	for seq := core.Seq(len(n.done)) - 1; seq >= 1; seq-- {
		if !n.done[seq] {
			next = seq
		}
		if w.Done(seq) != n.done[seq] {
			t.Fatalf("Done(%d): got %v, want %v", seq, w.Done(seq), n.done[seq])
		}
		if got := w.NextUndone(seq); got != next {
			t.Fatalf("NextUndone(%d): got %d, want %d", seq, got, next)
		}
	}
	first := core.Seq(rapid.IntRange(1, len(n.done)).Draw(t, "within from"))
	last := core.Seq(rapid.IntRange(0, len(n.done)).Draw(t, "to"))
	within := uint64(0)
	for seq := first; seq <= min(last, core.Seq(len(n.done))-1); seq++ {
		if n.done[seq] {
			within++
		}
	}
	if got := w.Within(first, last); got != within {
		t.Fatalf("Within(%d, %d): got %d, want %d", first, last, got, within)
	}
}

// TestWindow_ManyHoles acks in random order, so that ranges become bits, and bits come to their end.
func TestWindow_ManyHoles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var n naive
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		start := core.Seq(rapid.IntRange(0, 200).Draw(t, "start"))
		n.ack(t, 1, uint64(start))
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			span := rapid.IntRange(600, 1500).Draw(t, "span")
			from := n.w.Frontier() + 1
			for _, i := range random.Perm(span)[:rapid.IntRange(1, span).Draw(t, "acks")] {
				n.ack(t, from+core.Seq(i), 1+uint64(random.IntN(50)/48*random.IntN(200)))
			}
			switch rapid.IntRange(0, 2).Draw(t, "then") {
			case 0: // the holes close from below
				n.ack(t, n.w.Frontier()+1, uint64(rapid.IntRange(1, span).Draw(t, "closed")))
			case 1: // all of it
				n.ack(t, 1, uint64(n.w.Top()))
			}
			n.check(t, &n.w)
		}
		b, bitmap := n.w.Append(nil)
		if most := n.w.SizeMost(); len(b) > most || most > 4*len(b)+64 {
			t.Fatalf("%d bytes, which were to be at most %d", len(b), most)
		}
		back, form, rest, err := acklevel.Decode(append(b, "tail"...), 1<<20)
		if err != nil || form != bitmap || string(rest) != "tail" {
			t.Fatalf("decode: %v, bits %v, rest %q", err, form, rest)
		}
		n.check(t, back)
		var o acklevel.Window
		o.AckRange(10, 3)
		o.Merge(n.w.Clone())
		n.ack(t, 10, 3)
		n.check(t, &o)
	})
}

// A seq far beyond the others turns bits into ranges again. Once the holes have moved up, the bits come back, also
// where the first ones were dropped.
func TestWindow_BitsEndAndComeBack(t *testing.T) {
	var w acklevel.Window
	holes := func(from, to core.Seq) {
		for seq := from; seq < to; seq += 2 {
			w.Ack(seq)
		}
	}
	holes(2, 2000)
	w.Ack(1_000_000)
	if n := len(ranges(&w)); n != 1000 || !w.Done(1998) || w.Done(1999) || !w.Done(1_000_000) || w.NextUndone(1_000_000) != 1_000_001 {
		t.Fatalf("%d ranges beyond the span of bits", n)
	}
	w.AckRange(1, 999_000)
	for from := core.Seq(999_002); from < 1_500_000; from += 10_000 { // over many times the words that there are
		holes(from, from+10_000)
		if w.AckRange(1, uint64(from)+5_000); w.Frontier() != from+5_000 {
			t.Fatalf("the frontier is %d, want %d", w.Frontier(), from+5_000)
		}
	}
	for r := range w.Ranges() {
		if r.First != r.Last || r.First%2 != 0 || w.Done(r.First+1) {
			t.Fatalf("range %+v", r)
		}
	}
	if b, bitmap := w.Append(nil); !bitmap || len(b) > 1000 || w.Above() != 2499 {
		t.Errorf("%d bytes, bits %v, %d above", len(b), bitmap, w.Above())
	}
}

// A timer extent's acks come in the order of due times: the encoding has a bound, and is the shorter form at each time.
func TestWindow_BoundOfATimerExtent(t *testing.T) {
	const most = 131_072
	var w acklevel.Window
	longest, forms := 0, map[bool]int{}
	for i, seq := range rand.New(rand.NewPCG(1, 2)).Perm(most) {
		if !w.Ack(core.Seq(seq + 1)) {
			t.Fatalf("ack of %d is not new", seq+1)
		}
		if i%4096 == 0 {
			b, bitmap := w.Append(nil)
			forms[bitmap]++
			longest = max(longest, len(b))
		}
	}
	if longest > most/8+16 || forms[true] < 25 || forms[false] < 1 {
		t.Errorf("the longest encoding has %d bytes, want at most 16 KiB and a header; bits %d times, ranges %d times", longest, forms[true], forms[false])
	}
	if b, bitmap := w.Append(nil); w.Frontier() != most || w.Above() != 0 || bitmap || len(b) > 4 {
		t.Errorf("all is done: frontier %d, %d above, %d bytes", w.Frontier(), w.Above(), len(b))
	}
}

func TestWindow_BitsAllocateNothing(t *testing.T) {
	var w acklevel.Window
	for seq := core.Seq(2); seq < 4000; seq += 2 {
		w.Ack(seq)
	}
	seq := core.Seq(3)
	if got := testing.AllocsPerRun(1000, func() { w.Ack(seq); seq += 2 }); got != 0 {
		t.Errorf("got %v allocations per ack, want 0", got)
	}
}
