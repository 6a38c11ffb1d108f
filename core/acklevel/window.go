// Package acklevel owns the settled seqs of a group in one extent: an ack level, and the settled seqs above it.
package acklevel

import (
	"iter"
	"math"
	"slices"

	"github.com/columbamq/columba/core"
)

// Range is the seqs from First to Last, both included.
type Range struct {
	First, Last core.Seq
}

// Window is the set of done seqs of one extent: every seq up to the frontier, and what is above it as ranges, or, where
// those are many and close together, as bits. Its size follows the number of holes, not the number of seqs: a million
// acks beyond one hole are one range; and it has an upper bound of a bit for each seq.
//
//	frontier+1 < ranges[0].First;  ranges[i].Last+1 < ranges[i+1].First      (sorted, never adjacent)
//	bits == nil or ranges is empty;  bits == nil when above == 0
//
// An ack is O(1) at the frontier, at the end of the range touched last, and among bits; others cost a binary search.
// The zero Window is empty. It is not safe for concurrent use.
type Window struct {
	frontier core.Seq
	ranges   []Range
	bits     *bitmap
	above    uint64 // seqs in ranges or bits
	hint     int    // index of the range touched last
}

// Ack marks seq as done and reports whether it was not done before. Seq 0 is no position and always counts as done.
func (w *Window) Ack(seq core.Seq) bool {
	return w.AckRange(seq, 1) == 1
}

// AckRange marks count seqs from base as done and returns how many of them were not done before. A range that would
// pass the largest seq ends there.
func (w *Window) AckRange(base core.Seq, count uint64) uint64 {
	if count == 0 {
		return 0
	}
	last := base + core.Seq(count-1)
	if last < base {
		last = math.MaxUint64
	}
	if last <= w.frontier {
		return 0
	}
	first := max(base, w.frontier+1)
	if w.bits != nil {
		if last-w.frontier <= giveUpSpan {
			return w.setBits(first, last)
		}
		w.ranges, w.bits, w.hint = slices.AppendSeq(w.ranges[:0], w.Ranges()), nil, 0
	}
	if len(w.ranges) == 0 && first == w.frontier+1 {
		fresh := uint64(last - w.frontier)
		w.frontier = last
		return fresh
	}
	if w.hint < len(w.ranges) && last < math.MaxUint64 { // the usual out-of-order ack: the next of a run
		if r := &w.ranges[w.hint]; r.Last+1 == first && (w.hint+1 == len(w.ranges) || w.ranges[w.hint+1].First > last+1) {
			r.Last = last
			fresh := uint64(last - first + 1)
			w.above += fresh
			return fresh
		}
	}
	return w.insert(Range{first, last})
}

// insert adds r, which lies above the frontier, and joins what touches it.
func (w *Window) insert(r Range) uint64 {
	at := w.search(r.First - 1) // first range that r may join: it ends at or after r.First-1
	end := at
	merged, covered := r, uint64(0)
	for ; end < len(w.ranges) && (r.Last == math.MaxUint64 || w.ranges[end].First <= r.Last+1); end++ {
		old := w.ranges[end]
		covered += overlap(old, r)
		w.above -= uint64(old.Last-old.First) + 1
		merged.First, merged.Last = min(merged.First, old.First), max(merged.Last, old.Last)
	}
	fresh := uint64(r.Last-r.First) + 1 - covered
	if merged.First == w.frontier+1 {
		w.frontier = merged.Last
		w.ranges = slices.Delete(w.ranges, at, end)
		w.hint = 0
		w.shrink()
		return fresh
	}
	switch end - at {
	case 0:
		w.ranges = slices.Insert(w.ranges, at, merged)
	case 1:
		w.ranges[at] = merged
	default:
		w.ranges[at] = merged
		w.ranges = slices.Delete(w.ranges, at+1, end)
	}
	w.above += uint64(merged.Last-merged.First) + 1
	w.hint = at
	if top := w.Top(); len(w.ranges) > manyRanges && top-w.frontier <= maxSpan && top <= math.MaxUint64-2*giveUpSpan {
		w.bits, w.ranges = newBitmap(w), nil
	}
	return fresh
}

// setBits is AckRange for seqs above the frontier that are kept as bits.
func (w *Window) setBits(first, last core.Seq) (fresh uint64) {
	fresh = w.bits.set(first, last, w.frontier)
	w.above += fresh
	if first != w.frontier+1 {
		return fresh
	}
	next := w.bits.next(first, true)
	w.above -= uint64(next - first)
	w.frontier = next - 1
	if w.above == 0 {
		w.bits = nil
	}
	return fresh
}

// shrink gives back the memory of a time with many more holes.
func (w *Window) shrink() {
	const keep = 512
	if c := cap(w.ranges); c > keep && len(w.ranges) < c/8 {
		w.ranges = append(make([]Range, 0, max(keep, c/4)), w.ranges...)
	}
}

// search is the index of the first range that ends at or after seq.
func (w *Window) search(seq core.Seq) int {
	lo, hi := 0, len(w.ranges)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if w.ranges[mid].Last < seq {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func overlap(a, b Range) uint64 {
	first, last := max(a.First, b.First), min(a.Last, b.Last)
	if first > last {
		return 0
	}
	return uint64(last-first) + 1
}

// Done reports whether seq is done.
func (w *Window) Done(seq core.Seq) bool {
	if seq <= w.frontier {
		return true
	}
	if w.bits != nil {
		return w.bits.has(seq)
	}
	if len(w.ranges) == 0 || seq > w.ranges[len(w.ranges)-1].Last {
		return false
	}
	i := w.search(seq)
	return i < len(w.ranges) && w.ranges[i].First <= seq
}

// NextUndone is the smallest seq ≥ seq that is not done. It is 0 when every seq up to the largest is done.
func (w *Window) NextUndone(seq core.Seq) core.Seq {
	if seq <= w.frontier {
		seq = w.frontier + 1
	}
	if w.bits != nil {
		return w.bits.next(seq, true)
	}
	if i := w.search(seq); i < len(w.ranges) && w.ranges[i].First <= seq {
		return w.ranges[i].Last + 1
	}
	return seq
}

// Frontier is the seq up to which everything is done.
func (w *Window) Frontier() core.Seq { return w.frontier }

// Top is the largest done seq.
func (w *Window) Top() core.Seq {
	if w.bits != nil {
		return w.bits.top
	}
	if n := len(w.ranges); n > 0 {
		return w.ranges[n-1].Last
	}
	return w.frontier
}

// Above is the number of done seqs above the frontier.
func (w *Window) Above() uint64 { return w.above }

// Within is how many of the seqs from first, ≥ 1, to last are done. It looks at those only, however many holes there
// are below.
func (w *Window) Within(first, last core.Seq) (n uint64) {
	if first <= w.frontier {
		n = overlap(Range{1, w.frontier}, Range{first, last})
		first = w.frontier + 1
	}
	if w.bits != nil {
		return n + w.bits.count(first, last)
	}
	for i := w.search(first); i < len(w.ranges) && w.ranges[i].First <= last; i++ {
		n += overlap(w.ranges[i], Range{first, last})
	}
	return n
}

// Ranges yields what is done above the frontier in order, as ranges that do not touch. The window must not change
// meanwhile.
func (w *Window) Ranges() iter.Seq[Range] {
	if w.bits == nil {
		return slices.Values(w.ranges)
	}
	return func(yield func(Range) bool) {
		for seq := w.bits.next(w.frontier+1, false); seq <= w.bits.top; {
			end := w.bits.next(seq, true)
			if !yield(Range{seq, end - 1}) {
				return
			}
			seq = w.bits.next(end, false)
		}
	}
}

// Merge adds everything that is done in o.
func (w *Window) Merge(o *Window) {
	w.AckRange(1, uint64(o.frontier))
	for r := range o.Ranges() {
		w.AckRange(r.First, uint64(r.Last-r.First)+1)
	}
}

// Clone is a copy that shares nothing with w.
func (w *Window) Clone() *Window {
	c := &Window{frontier: w.frontier, ranges: slices.Clone(w.ranges), above: w.above}
	if w.bits != nil {
		c.bits = &bitmap{base: w.bits.base, words: slices.Clone(w.bits.words), top: w.bits.top}
	}
	return c
}
