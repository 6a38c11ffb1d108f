package acklevel

import (
	"math/bits"

	"github.com/columbamq/columba/core"
)

// When the seqs above the frontier are kept as bits: acks in random order would make each one more range in the middle
// of thousands.
const (
	manyRanges = 256
	maxSpan    = core.Seq(128 << 10) // between the frontier and the largest done seq …
	giveUpSpan = 2 * maxSpan         // … and beyond this they are ranges again
)

const wordBits = 64

// bitmap is a set of seqs from base on, bit i of word j standing for base + 64 j + i.
//
//	base ≤ frontier+1;  every seq from base to the frontier is set;  top is the largest set one
type bitmap struct {
	base  core.Seq
	words []uint64
	top   core.Seq
}

// newBitmap holds the window's ranges, all within giveUpSpan above its frontier.
func newBitmap(w *Window) *bitmap {
	b := &bitmap{base: (w.frontier + 1) &^ (wordBits - 1)}
	b.set(b.base, w.frontier, w.frontier) // an empty run when the frontier is at the end of a word
	for _, r := range w.ranges {
		b.set(r.First, r.Last, w.frontier)
	}
	return b
}

// set adds the seqs from first to last, none of them below base, and returns how many were not there.
func (b *bitmap) set(first, last, frontier core.Seq) (fresh uint64) {
	if first > last {
		return 0
	}
	b.reach(last, frontier)
	b.top = max(b.top, last)
	from, to := uint64(first-b.base), uint64(last-b.base)
	for i := from / wordBits; i <= to/wordBits; i++ {
		mask := maskOf(i, from, to)
		fresh += uint64(bits.OnesCount64(mask &^ b.words[i]))
		b.words[i] |= mask
	}
	return fresh
}

// count is how many seqs from first ≥ base to last are set.
func (b *bitmap) count(first, last core.Seq) (n uint64) {
	last = min(last, b.top)
	if first > last {
		return 0
	}
	from, to := uint64(first-b.base), uint64(last-b.base)
	for i := from / wordBits; i <= to/wordBits; i++ {
		n += uint64(bits.OnesCount64(maskOf(i, from, to) & b.words[i]))
	}
	return n
}

// maskOf are the bits of word i that lie between the bits from and to of all, both included.
func maskOf(i, from, to uint64) uint64 {
	mask := ^uint64(0)
	if i == from/wordBits {
		mask <<= from % wordBits
	}
	if i == to/wordBits {
		mask &= ^uint64(0) >> (wordBits - 1 - to%wordBits)
	}
	return mask
}

// reach makes room for a seq. The words that the frontier has passed are used again once they are a quarter of all.
func (b *bitmap) reach(seq, frontier core.Seq) {
	need := int((seq-b.base)/wordBits) + 1
	if need <= len(b.words) {
		return
	}
	if passed := int((frontier + 1 - b.base) / wordBits); passed > 0 && passed >= len(b.words)/4 {
		passed = min(passed, len(b.words))
		rest := copy(b.words, b.words[passed:])
		clear(b.words[rest:])
		b.base += core.Seq(passed) * wordBits
		need -= passed
	}
	if need > len(b.words) {
		b.words = append(b.words, make([]uint64, need-len(b.words))...)
	}
}

func (b *bitmap) has(seq core.Seq) bool {
	i := uint64(seq - b.base)
	return i/wordBits < uint64(len(b.words)) && b.words[i/wordBits]>>(i%wordBits)&1 == 1
}

// next is the smallest seq ≥ seq ≥ base that is set, or with not that is not set; one behind all words when there is
// none.
func (b *bitmap) next(seq core.Seq, not bool) core.Seq {
	flip := uint64(0)
	if not {
		flip = ^uint64(0)
	}
	at := uint64(seq - b.base)
	for i, skip := at/wordBits, at%wordBits; i < uint64(len(b.words)); i, skip = i+1, 0 {
		if w := (b.words[i] ^ flip) >> skip << skip; w != 0 {
			return b.base + core.Seq(i*wordBits) + core.Seq(bits.TrailingZeros64(w))
		}
	}
	return max(seq, b.base+core.Seq(len(b.words)*wordBits))
}
