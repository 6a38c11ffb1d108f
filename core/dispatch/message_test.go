package dispatch

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
)

// TestTable_Skip compares it with a look at each seq, also at the highest seqs there are.
func TestTable_Skip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := newTable()
		first := rapid.SampledFrom([]core.Seq{1, 1000, math.MaxUint64 - 300}).Draw(t, "first")
		for _, i := range rapid.SliceOfNDistinct(rapid.Uint64Range(0, 299), 0, 8, rapid.ID[uint64]).Draw(t, "phases") {
			table.put(first + core.Seq(i)).phase = inFlight
		}
		from := rapid.Uint32Range(0, 299).Draw(t, "from")
		most := rapid.Uint32Range(0, 300-from).Draw(t, "most")
		base := first + core.Seq(from)
		want := uint32(0)
		for want < most && table.get(base+core.Seq(want)) == nil {
			want++
		}
		if got := table.skip(base, most); got != want {
			t.Fatalf("skip(%d, %d) = %d, want %d", base, most, got, want)
		}
	})
}

// TestTable_EachChunk compares the runs with the messages one by one: each message is in one run, in order, and what
// is said of the first one of a run is true of all.
func TestTable_EachChunk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := newTable()
		at := core.Seq(1)
		for range rapid.IntRange(0, 12).Draw(t, "runs") {
			at += core.Seq(rapid.SampledFrom([]int{0, 0, 1, 70}).Draw(t, "gap"))
			like := message{
				attempts: rapid.Uint16Range(1, 2).Draw(t, "attempts"), phase: rapid.SampledFrom([]phase{inFlight, delayed}).Draw(t, "phase"),
				failure: rapid.SampledFrom([]Failure{NoFailure, Nacked}).Draw(t, "failure"), due: rapid.Int64Range(0, 1).Draw(t, "due"),
			}
			noted := rapid.IntRange(0, 100).Draw(t, "noted")
			for i := range rapid.IntRange(1, 80).Draw(t, "count") {
				like.session = SessionID(i % 3)
				*table.put(at) = like
				if i == noted {
					table.setNote(at, note{text: "why"})
				}
				at++
			}
		}
		seen := map[core.Seq]bool{}
		var key uint64
		var last core.Seq
		table.eachChunk(func(k uint64) { key, last = k, 0 }, func(seq core.Seq, count int, m *message, x note) {
			if seq <= last || count < 1 || uint64(seq)>>chunkBits != key || uint64(seq+core.Seq(count)-1)>>chunkBits != key {
				t.Fatalf("%d messages from %d on follow %d in chunk %d", count, seq, last, key)
			}
			for i := range core.Seq(count) {
				got := table.get(seq + i)
				if got == nil || got.due != m.due || got.attempts != m.attempts || got.phase != m.phase || got.failure != m.failure || table.note(seq+i) != x || count > 1 && x != (note{}) {
					t.Fatalf("message %d is %+v, said to be like %+v of %d, with note %+v", seq+i, got, m, seq, x)
				}
				seen[seq+i] = true
			}
			last = seq + core.Seq(count) - 1
		})
		if len(seen) != table.n {
			t.Fatalf("%d of %d messages were listed", len(seen), table.n)
		}
	})
}
