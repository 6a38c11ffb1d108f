package acklevel

import (
	"encoding/binary"
	"math"

	"github.com/columbamq/columba/core"
)

// maxRangeLen is the largest encoding of one range.
const maxRangeLen = 2 * binary.MaxVarintLen64

// AppendBinary appends the window's encoding to dst:
//
//	frontier uvarint | n uvarint | n × { undone seqs before the range uvarint ≥ 1 | last − first uvarint }
//
// There is one encoding of a window. The error is always nil.
func (w *Window) AppendBinary(dst []byte) ([]byte, error) {
	dst = binary.AppendUvarint(dst, uint64(w.frontier))
	dst = binary.AppendUvarint(dst, uint64(len(w.ranges)))
	end := w.frontier
	for _, r := range w.ranges {
		dst = binary.AppendUvarint(dst, uint64(r.First-end-1))
		dst = binary.AppendUvarint(dst, uint64(r.Last-r.First))
		end = r.Last
	}
	return dst, nil
}

// Decode reads a window of at most maxRanges ranges from the front of b and returns what follows it. What is cut short,
// too long or not of the one form is CodeCorrupt.
func Decode(b []byte, maxRanges int) (w *Window, rest []byte, err error) {
	d := decoder{b: b}
	frontier, n := d.uvarint(), d.uvarint()
	if d.bad || n > uint64(maxRanges) || n > uint64(len(d.b)/2) {
		return nil, nil, core.Errorf(core.CodeCorrupt, "ack window of %d ranges in %d bytes is damaged; at most %d ranges are allowed", n, len(b), maxRanges)
	}
	w = &Window{frontier: core.Seq(frontier)}
	if n > 0 {
		w.ranges = make([]Range, n)
	}
	end := frontier
	for i := range w.ranges {
		gap, span := d.uvarint(), d.uvarint()
		if d.bad || gap == 0 || gap >= math.MaxUint64-end || span > math.MaxUint64-(end+gap+1) {
			return nil, nil, core.Errorf(core.CodeCorrupt, "range %d of an ack window is damaged", i)
		}
		first := end + gap + 1
		end = first + span
		w.ranges[i] = Range{core.Seq(first), core.Seq(end)}
		w.above += span + 1
	}
	return w, d.b, nil
}

// MaxEncodedLen bounds the length of the encoding without making it.
func (w *Window) MaxEncodedLen() int {
	return 2*binary.MaxVarintLen64 + maxRangeLen*len(w.ranges)
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
