package extentlog

import (
	"bytes"
	"math"
	"slices"

	"github.com/columbamq/columba/core"
)

// Bounds of what is moved at once.
const (
	runMost = 8 << 20
	// joinGap is how many live bytes between two pieces are moved with them: less than another table costs.
	joinGap = 64 << 10
)

// run is a range of keys whose live records move to one table; to is exclusive.
type run struct {
	from, to []byte
	bytes    int64
	moves    bool      // a piece of it has to move
	extents  []*extent // those with a key between
}

// resident is an extent as far as the database has it.
type resident struct {
	x       *extent
	bytes   uint64 // with those that only the log has
	last    core.Seq
	drained core.Seq // up to here the database has it
	fixed   bool     // it is being removed, and must not move
}

// between is how many bytes the database has of the extent from a seq on, up to before another one.
func (r *resident) between(from, to core.Seq) int64 {
	to = min(to, r.drained+1)
	if from = max(from, 1); to <= from || r.last == 0 {
		return 0
	}
	return int64(float64(r.bytes) / float64(r.last) * float64(to-from))
}

// residents are all extents, in the order of their ids.
func (e *Engine) residents() []resident {
	e.mu.RLock()
	all := make([]resident, 0, len(e.mu.extents))
	for _, x := range e.mu.extents {
		all = append(all, resident{x: x})
	}
	e.mu.RUnlock()
	for i := range all {
		r := &all[i]
		s, known := r.x.state()
		r.bytes, r.last, r.drained, r.fixed = s.Bytes, s.Last, r.x.held.drained(s.Last), !known && r.x.isRemoved()
	}
	slices.SortFunc(all, func(a, b resident) int { return compareIDs(a.x.id, b.x.id) })
	return all
}

// gap is how many live bytes are from one key on, up to before another one. It has no end if some of them must not
// move.
func gap(from, to []byte, all []resident) (sum int64) {
	first, low := placeOf(from)
	last, high := placeOf(to)
	i, _ := slices.BinarySearchFunc(all, first, func(r resident, id core.ExtentID) int { return compareIDs(r.x.id, id) })
	for ; i < len(all) && compareIDs(all[i].x.id, last) <= 0; i++ {
		r := &all[i]
		begin, end := core.Seq(1), core.Seq(math.MaxUint64)
		if r.x.id == first {
			begin = low
		}
		if r.x.id == last {
			end = high
		}
		switch {
		case r.fixed:
			return math.MaxInt64
		case sum > joinGap:
			return sum
		}
		sum += r.between(begin, end)
	}
	return sum
}

// joinPieces makes runs of pieces between which there is little that lives.
func joinPieces(pieces []piece, all []resident) (runs []run) {
	slices.SortFunc(pieces, func(a, b piece) int { return bytes.Compare(a.from, b.from) })
	for _, p := range pieces {
		if n := len(runs); n > 0 {
			r := &runs[n-1]
			switch between := gap(r.to, p.from, all); {
			case bytes.Compare(p.from, r.to) < 0: // the same range in two tables
				if bytes.Compare(p.to, r.to) > 0 {
					r.to = p.to
				}
				r.bytes, r.moves = r.bytes+p.bytes, r.moves || !p.whole
				continue
			case between <= joinGap && r.bytes+between+p.bytes <= runMost:
				r.to, r.bytes, r.moves = p.to, r.bytes+between+p.bytes, r.moves || !p.whole
				continue
			}
		}
		runs = append(runs, run{from: p.from, to: p.to, bytes: p.bytes, moves: !p.whole})
	}
	runs = slices.DeleteFunc(runs, func(r run) bool { return !r.moves })
	for i := range runs {
		r := &runs[i]
		first, _ := placeOf(r.from)
		at, _ := slices.BinarySearchFunc(all, first, func(r resident, id core.ExtentID) int { return compareIDs(r.x.id, id) })
		for ; at < len(all) && bytes.Compare(extentKey(prefixBatch, all[at].x.id), r.to) < 0; at++ {
			r.extents = append(r.extents, all[at].x)
		}
	}
	return runs
}
