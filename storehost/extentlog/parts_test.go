package extentlog

import (
	"bytes"
	"slices"
	"testing"

	"github.com/columbamq/columba/core"
)

func partBetween(n byte, first, behind core.Seq, bytes int64, table uint64) part {
	id := core.ExtentID{ID: core.ID{n}}
	return part{from: batchKey(id, first), to: batchKey(id, behind), bytes: bytes, table: table}
}

// TestJoinParts: parts move together if they overlap, or little lives between them. Small tables move only with them.
func TestJoinParts(t *testing.T) {
	a, within, b := partBetween(1, 1, 9, 10, 7), partBetween(1, 3, 5, 10, 8), partBetween(1, 20, 30, 10, 7)
	far := partBetween(2, 1, 9, 10, 9)
	beside, alone, last := partBetween(3, 1, 9, 10, 0), partBetween(4, 1, 9, 10, 0), partBetween(5, 1, 9, 10, 0)
	large := partBetween(6, 1, 9, runMost, 9)
	near := func(_, to []byte) bool { return !bytes.Equal(to, far.from) && !bytes.Equal(to, last.from) }
	runs := joinParts([]part{large, far, b, within, a}, []part{last, alone, beside}, near)
	want := [][]part{{a, within, b}, {far, beside}, {large}}
	var got [][]part
	for _, r := range runs {
		got = append(got, r.parts)
		if to := r.parts[len(r.parts)-1].to; !bytes.Equal(r.from, r.parts[0].from) || !bytes.Equal(r.to, to) {
			t.Errorf("a run from %x to %x", r.from, r.to)
		}
	}
	same := func(a, b part) bool { return bytes.Equal(a.from, b.from) && a.table == b.table }
	if !slices.EqualFunc(got, want, func(a, b []part) bool { return slices.EqualFunc(a, b, same) }) {
		t.Errorf("got %v, want %v", got, want)
	}
}
