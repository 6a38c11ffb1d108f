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
