package acklevel

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/columbamq/columba/core"
)

// Append appends the window's encoding to dst, the shorter of two forms, ranges when they are of one length:
//
//	frontier uvarint | n uvarint | n × { undone seqs before the range uvarint ≥ 1 | last − first uvarint }
//	frontier uvarint | 1 | 0 | length uvarint | bits: seq frontier+2+i is bit i%8 of byte i/8; the last byte is not 0
//
// There is one encoding of a window. bitmap tells the second form.
func (w *Window) Append(dst []byte) (out []byte, bitmap bool) {
	dst = binary.AppendUvarint(dst, uint64(w.frontier))
	if n := w.bitmapLen(); n > 0 && w.rangesExceed(2+uvarintLen(n)+n) {
		dst = append(dst, 1, 0)
		return w.appendBits(binary.AppendUvarint(dst, n), int(n)), true
	}
	n := 0
	for range w.Ranges() {
		n++
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	end := w.frontier
	for r := range w.Ranges() {
		dst = binary.AppendUvarint(dst, uint64(r.First-end-1))
		dst = binary.AppendUvarint(dst, uint64(r.Last-r.First))
		end = r.Last
	}
	return dst, false
}

// SizeMost is at least how many bytes Append adds, and not much more, without a look at the holes.
func (w *Window) SizeMost() int {
	const heads = 4 * binary.MaxVarintLen64
	span := uint64(w.Top() - w.frontier)
	if span == 0 {
		return heads
	}
	n := uint64(len(w.ranges))
	if w.bits != nil { // there are no more ranges than seqs that are done, or not done, above the frontier
		n = min(w.above, span-w.above)
	}
	n *= 2 // numbers, which add up to the span: they take most when all are of the same size
	most := float64(n) * (1 + math.Log2(float64(span)/float64(n)+1)/7)
	return heads + int(min(most, float64(span)/8))
}

// bitmapLen is how many bytes the bits above the frontier take; 0 without any, and when they are too many to be the
// shorter form.
func (w *Window) bitmapLen() uint64 {
	span := uint64(w.Top() - w.frontier)
	if span == 0 || span/8 > maxRangeLen*w.above {
		return 0
	}
	return (span - 1 + 7) / 8
}

// maxRangeLen is the largest encoding of one range.
const maxRangeLen = 2 * binary.MaxVarintLen64

// rangesExceed reports whether the ranges, with their number, take more than n bytes.
func (w *Window) rangesExceed(n uint64) bool {
	length, count, end := uint64(0), uint64(0), w.frontier
	for r := range w.Ranges() {
		count++
		length += uvarintLen(uint64(r.First-end-1)) + uvarintLen(uint64(r.Last-r.First))
		if end = r.Last; length > n {
			return true
		}
	}
	return length+uvarintLen(count) > n
}

// appendBits writes n bytes of bits.
func (w *Window) appendBits(dst []byte, n int) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, n)...)
	for r := range w.Ranges() {
		from, to := uint64(r.First-w.frontier-2), uint64(r.Last-w.frontier-2)
		for from <= to {
			if from%8 == 0 && to-from >= 7 {
				dst[at+int(from/8)] = 0xff
				from += 8
				continue
			}
			dst[at+int(from/8)] |= 1 << (from % 8)
			from++
		}
	}
	return dst
}

func uvarintLen(v uint64) uint64 {
	n := uint64(1)
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// Decode reads a window of at most maxRanges ranges, or of bits, from the front of b and returns what follows it. Input
// that is cut short, too long, or not in the one valid form is CodeCorrupt.
func Decode(b []byte, maxRanges int) (w *Window, bitmap bool, rest []byte, err error) {
	w, bitmap, rest, err = decode(b, maxRanges)
	if err != nil {
		return nil, false, nil, err
	}
	if one, _ := w.Append(nil); !bytes.Equal(one, b[:len(b)-len(rest)]) {
		return nil, false, nil, core.Errorf(core.CodeCorrupt, "ack window of %d bytes is not in its one form", len(b)-len(rest))
	}
	return w, bitmap, rest, nil
}

// DecodeRanges is Decode for a window in the form of ranges, also where bits would have been shorter: earlier builds
// knew no other.
func DecodeRanges(b []byte, maxRanges int) (w *Window, rest []byte, err error) {
	w, bitmap, rest, err := decode(b, maxRanges)
	if err == nil && bitmap {
		err = core.Errorf(core.CodeCorrupt, "ack window has bits where only ranges are known")
	}
	if err != nil {
		return nil, nil, err
	}
	return w, rest, nil
}

func decode(b []byte, maxRanges int) (w *Window, bitmap bool, rest []byte, err error) {
	d := decoder{b: b}
	frontier, n := d.uvarint(), d.uvarint()
	if d.bad || n > uint64(maxRanges) || n > uint64(len(b)/2) {
		return nil, false, nil, core.Errorf(core.CodeCorrupt, "ack window of %d ranges in %d bytes is damaged; at most %d are allowed", n, len(b), maxRanges)
	}
	w = &Window{frontier: core.Seq(frontier)}
	if n == 1 && len(d.b) > 0 && d.b[0] == 0 {
		if !w.decodeBits(&d) {
			return nil, false, nil, core.Errorf(core.CodeCorrupt, "bits of an ack window of %d bytes are damaged", len(b))
		}
		return w, true, d.b, nil
	}
	end := frontier
	for i := range n {
		gap, span := d.uvarint(), d.uvarint()
		if d.bad || gap == 0 || gap >= math.MaxUint64-end || span > math.MaxUint64-(end+gap+1) {
			return nil, false, nil, core.Errorf(core.CodeCorrupt, "range %d of an ack window is damaged", i)
		}
		first := end + gap + 1
		end = first + span
		w.AckRange(core.Seq(first), span+1)
	}
	return w, false, d.b, nil
}

// decodeBits reads what follows the number of ranges.
func (w *Window) decodeBits(d *decoder) bool {
	d.b = d.b[1:]
	n := d.uvarint()
	if d.bad || n == 0 || n > uint64(len(d.b)) || d.b[n-1] == 0 || uint64(w.frontier) > math.MaxUint64-8*n-2 {
		return false
	}
	base := w.frontier + 2
	for i, v := range d.b[:n] {
		for bit := core.Seq(0); v != 0; bit, v = bit+1, v>>1 {
			if v&1 == 1 {
				w.Ack(base + core.Seq(8*i) + bit)
			}
		}
	}
	d.b = d.b[n:]
	return true
}

// decoder reads shortest-form uvarints and remembers the first damage.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 { // cut short, too large, or padded
		d.bad = true
		d.b = nil
		return 0
	}
	d.b = d.b[n:]
	return v
}
