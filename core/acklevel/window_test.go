package acklevel_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func ranges(w *acklevel.Window) []acklevel.Range { return slices.Collect(w.Ranges()) }

func TestWindow_HolesAndJoins(t *testing.T) {
	var w acklevel.Window
	steps := []struct {
		base     core.Seq
		count    uint64
		fresh    uint64
		frontier core.Seq
		ranges   []acklevel.Range
	}{
		{0, 1, 0, 0, nil},
		{1, 3, 3, 3, nil},
		{2, 1, 0, 3, nil},
		{5, 2, 2, 3, []acklevel.Range{{5, 6}}},
		{7, 1, 1, 3, []acklevel.Range{{5, 7}}},
		{10, 1, 1, 3, []acklevel.Range{{5, 7}, {10, 10}}},
		{20, 5, 5, 3, []acklevel.Range{{5, 7}, {10, 10}, {20, 24}}},
		{8, 12, 11, 3, []acklevel.Range{{5, 24}}},
		{1, 4, 1, 24, nil},
		{26, 0, 0, 24, nil},
		{math.MaxUint64, 9, 1, 24, []acklevel.Range{{math.MaxUint64, math.MaxUint64}}},
		{25, 1, 1, 25, []acklevel.Range{{math.MaxUint64, math.MaxUint64}}},
	}
	for i, s := range steps {
		if got := w.AckRange(s.base, s.count); got != s.fresh {
			t.Fatalf("step %d: got %d fresh, want %d", i, got, s.fresh)
		}
		if w.Frontier() != s.frontier {
			t.Fatalf("step %d: got frontier %d, want %d", i, w.Frontier(), s.frontier)
		}
		if diff := cmp.Diff(s.ranges, ranges(&w)); diff != "" {
			t.Fatalf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestWindow_OneHoleAndAMillionBeyond(t *testing.T) {
	var w acklevel.Window
	for seq := core.Seq(2); seq <= 1_000_000; seq++ {
		if !w.Ack(seq) {
			t.Fatalf("ack of %d is not new", seq)
		}
	}
	if b, _ := w.Append(nil); len(ranges(&w)) != 1 || len(b) > 10 {
		t.Fatalf("got %d ranges, %d bytes, want one range in at most 10 bytes", len(ranges(&w)), len(b))
	}
	if w.Ack(1); w.Frontier() != 1_000_000 || len(ranges(&w)) != 0 || w.Above() != 0 {
		t.Fatalf("got frontier %d, %d ranges, %d above, want 1000000, 0, 0", w.Frontier(), len(ranges(&w)), w.Above())
	}
}

// model checks w against the set of done seqs in 1 … top.
func model(t *rapid.T, w *acklevel.Window, done map[core.Seq]bool, top core.Seq) {
	frontier, above := core.Seq(0), uint64(0)
	for done[frontier+1] {
		frontier++
	}
	var want []acklevel.Range
	for seq := frontier + 1; seq <= top; seq++ {
		if !done[seq] {
			continue
		}
		above++
		if n := len(want); n > 0 && want[n-1].Last == seq-1 {
			want[n-1].Last = seq
		} else {
			want = append(want, acklevel.Range{First: seq, Last: seq})
		}
	}
	if w.Frontier() != frontier || w.Above() != above {
		t.Fatalf("got frontier %d and %d above, want %d and %d", w.Frontier(), w.Above(), frontier, above)
	}
	if diff := cmp.Diff(want, ranges(w)); diff != "" {
		t.Fatalf("ranges (-want +got):\n%s", diff)
	}
	next := top + 1
	for seq := top; seq >= 1; seq-- {
		if !done[seq] {
			next = seq
		}
		if w.Done(seq) != done[seq] {
			t.Fatalf("Done(%d): got %v, want %v", seq, w.Done(seq), done[seq])
		}
		if got := w.NextUndone(seq); got != next {
			t.Fatalf("NextUndone(%d): got %d, want %d", seq, got, next)
		}
	}
	first := core.Seq(rapid.Uint64Range(1, uint64(top)+2).Draw(t, "within from"))
	last := core.Seq(rapid.Uint64Range(0, uint64(top)+2).Draw(t, "to"))
	within := uint64(0)
	for seq := first; seq <= last; seq++ {
		if done[seq] {
			within++
		}
	}
	if got := w.Within(first, last); got != within {
		t.Fatalf("Within(%d, %d): got %d, want %d", first, last, got, within)
	}
}

func draw(t *rapid.T, label string, w *acklevel.Window, done map[core.Seq]bool) {
	for range rapid.IntRange(0, 40).Draw(t, label) {
		base := core.Seq(rapid.IntRange(1, 60).Draw(t, "base"))
		count := uint64(rapid.IntRange(0, 6).Draw(t, "count"))
		var fresh uint64
		for seq := base; seq < base+core.Seq(count); seq++ {
			if !done[seq] {
				fresh++
			}
			done[seq] = true
		}
		if got := w.AckRange(base, count); got != fresh {
			t.Fatalf("AckRange(%d, %d): got %d fresh, want %d", base, count, got, fresh)
		}
	}
}

func TestWindow_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w, o acklevel.Window
		done, other := map[core.Seq]bool{}, map[core.Seq]bool{}
		draw(t, "acks", &w, done)
		model(t, &w, done, 70)
		draw(t, "others", &o, other)
		for seq := range other {
			done[seq] = true
		}
		w.Merge(&o)
		model(t, &w, done, 70)

		b, bitmap := w.Append([]byte("x"))
		back, form, rest, err := acklevel.Decode(append(b[1:], "tail"...), 100)
		if err != nil || form != bitmap || string(rest) != "tail" {
			t.Fatalf("decode: %v, bits %v, rest %q", err, form, rest)
		}
		model(t, back, done, 70)
		model(t, w.Clone(), done, 70)
	})
}

func TestDecode_Refuses(t *testing.T) {
	var w acklevel.Window
	w.AckRange(300, 2)
	w.AckRange(900, 1)
	good, _ := w.Append(nil)
	cases := map[string][]byte{
		"empty":        {},
		"adjacent":     {1, 1, 0, 3},
		"padded":       {0x81, 0, 0},
		"past the end": append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, 1, 1, 0),
		"many":         {0, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 1},
		"bits, cut":    {0, 1, 0, 3, 1, 1},
		"bits, empty":  {0, 1, 0, 0},
		"bits, padded": {0, 1, 0, 5, 0x55, 0x55, 0x55, 0x55, 0},
		"bits, longer": {0, 1, 0, 1, 1},
		"bits, end":    append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, 1, 0, 4, 0x55, 0x55, 0x55, 0x55),
		"ranges, long": {0, 5, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0},
	}
	for i := range len(good) {
		cases["cut at "+string(rune('0'+i))] = good[:i]
	}
	for name, b := range cases {
		if _, _, _, err := acklevel.Decode(b, 100); core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("%s: got %v, want %s", name, err, core.CodeCorrupt)
		}
	}
	if _, _, _, err := acklevel.Decode(good, 1); core.CodeOf(err) != core.CodeCorrupt {
		t.Errorf("2 ranges with a limit of 1: got %v, want %s", err, core.CodeCorrupt)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{0, 0})
	f.Add([]byte{3, 2, 1, 1, 5, 0, 9})
	f.Add([]byte{3, 1, 0, 3, 0x55, 0x55, 0x55, 9})
	f.Add([]byte{0, 5, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4<<10 {
			return
		}
		w, bitmap, rest, err := acklevel.Decode(b, 64)
		old, oldRest, oldErr := acklevel.DecodeRanges(b, 64)
		if err != nil {
			if oldErr == nil { // what an earlier build wrote becomes the one form
				now, _ := old.Append(nil)
				if _, _, _, err := acklevel.Decode(now, 64); err != nil || len(now) >= len(b)-len(oldRest) {
					t.Fatalf("%x decodes as ranges, and encodes as %x: %v", b, now, err)
				}
			}
			return
		}
		again, form := w.Append(nil)
		if !bytes.Equal(again, b[:len(b)-len(rest)]) || form != bitmap || bitmap != (oldErr != nil) {
			t.Fatalf("%x decodes, bits %v, but encodes as %x, bits %v; as ranges: %v", b, bitmap, again, form, oldErr)
		}
		var sum acklevel.Window
		sum.Merge(w)
		if twice, _ := sum.Append(nil); !bytes.Equal(twice, again) {
			t.Fatalf("merged into nothing %x becomes %x", again, twice)
		}
	})
}

func TestWindow_AckAllocatesNothing(t *testing.T) {
	var w acklevel.Window
	w.AckRange(10_000_000, 1)
	w.AckRange(20_000_000, 1)
	seq := core.Seq(1)
	if got := testing.AllocsPerRun(1000, func() {
		w.Ack(seq + 1)
		w.Ack(seq + 3)
		w.Ack(seq + 2)
		w.Ack(seq)
		seq += 4
	}); got != 0 {
		t.Errorf("got %v allocations per 4 acks, want 0", got)
	}
}

func BenchmarkAck(b *testing.B) {
	b.Run("in order", func(b *testing.B) {
		var w acklevel.Window
		b.ReportAllocs()
		for seq := core.Seq(1); b.Loop(); seq++ {
			w.Ack(seq)
		}
	})
	b.Run("beyond a hole", func(b *testing.B) {
		var w acklevel.Window
		b.ReportAllocs()
		for seq := core.Seq(2); b.Loop(); seq++ {
			w.Ack(seq)
		}
	})
	b.Run("timers", func(b *testing.B) {
		perm := rand.New(rand.NewPCG(1, 2)).Perm(131_072)
		var w acklevel.Window
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i%len(perm) == 0 {
				w = acklevel.Window{}
			}
			w.Ack(core.Seq(perm[i%len(perm)] + 1))
		}
	})
	b.Run("shuffled by 10000", func(b *testing.B) {
		perm := rand.New(rand.NewPCG(1, 2)).Perm(10_000)
		var w acklevel.Window
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			w.Ack(core.Seq(i/len(perm)*len(perm) + perm[i%len(perm)] + 1))
		}
	})
}
