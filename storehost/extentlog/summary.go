package extentlog

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/ring"
	"github.com/columbamq/columba/wire"
)

// summary is what a start wants to know of a segment of the ring whose rows are in the database: where the batches of
// which extents are, and which extents were removed, in the order of the log. It is the last group of its segment, so
// that a start reads it alone. Only commitLoop uses it.
//
// Layout: entries one after another, of unsigned varints, but for ids, and for the base, which is signed.
//
//	┌───┬───────┐   ┌───┬───────┬───────┐   ┌───────┬───────┐
//	│ 0 │ id 16 │   │ 1 │ id 16 │ batch │   │ n + 2 │ batch │
//	└───┴───────┘   └───┴───────┴───────┘   └───────┴───────┘
//	a removal       the first batch of      a batch of the nth extent, from 0 on, in the order
//	                an extent               of first batches
//
//	┌───────────────────────────────┬───────────┬───────────────────────────────────┬────────┐
//	│ base − the one expected       │ count − 1 │ offset − end of the batch before  │ length │   batch
//	└───────────────────────────────┴───────────┴───────────────────────────────────┴────────┘
type summary struct {
	entries []byte
	extents map[core.ExtentID]*summed
	end     uint32 // of the last batch in the segment
}

// summed is an extent in a summary.
type summed struct {
	number uint64
	next   core.Seq // base of the batch that is expected
}

const (
	summedRemoval = 0
	summedFirst   = 1
	summedMore    = 2
	// maxSummed bounds the bytes of an entry.
	maxSummed = 1 + idLen + binary.MaxVarintLen64 + 3*binary.MaxVarintLen32
)

func (s *summary) reset() {
	s.entries, s.end = s.entries[:0], 0
	s.extents = make(map[core.ExtentID]*summed)
}

// removed notes that an extent was removed.
func (s *summary) removed(id core.ExtentID) {
	s.entries = append(s.entries, summedRemoval)
	s.entries = append(s.entries, id.ID[:]...)
}

// batch notes where a batch is: behind all those before.
func (s *summary) batch(id core.ExtentID, h wire.BatchHeader, at ring.Place) {
	x := s.extents[id]
	if x == nil {
		x = &summed{number: uint64(len(s.extents))}
		s.extents[id] = x
		s.entries = append(s.entries, summedFirst)
		s.entries = append(s.entries, id.ID[:]...)
	} else {
		s.entries = binary.AppendUvarint(s.entries, x.number+summedMore)
	}
	s.entries = binary.AppendVarint(s.entries, int64(h.Base-x.next))
	s.entries = binary.AppendUvarint(s.entries, uint64(h.Count-1))
	s.entries = binary.AppendUvarint(s.entries, uint64(at.Offset-s.end))
	s.entries = binary.AppendUvarint(s.entries, uint64(at.Length))
	x.next, s.end = h.Last()+1, at.Offset+at.Length
}

// put copies the summary to the body of a group.
func (s *summary) put(b *ring.Buffer) {
	b.Reset()
	copy(b.Grow(len(s.entries)), s.entries)
}

// readSummary calls removed and batch in the order of the log. The batches have no bytes, and no header but base and
// count. CodeCorrupt.
func readSummary(g ring.Group, removed func(core.ExtentID), batch func(loggedBatch)) error {
	r := summaryReader{b: g.Body}
	type known struct {
		id   core.ExtentID
		next core.Seq
	}
	var extents []known
	end := uint64(0)
	for len(r.b) > 0 && !r.broken {
		kind := r.number()
		switch {
		case kind == summedRemoval:
			if id := r.id(); !r.broken {
				removed(id)
			}
			continue
		case kind == summedFirst:
			extents = append(extents, known{id: r.id()})
			kind = uint64(len(extents)-1) + summedMore
		}
		n := kind - summedMore
		if r.broken || n >= uint64(len(extents)) {
			r.broken = true
			break
		}
		x := &extents[n]
		base, count := uint64(x.next)+uint64(r.signed()), uint64(r.small())+1
		offset := end + uint64(r.small())
		length := uint64(r.small())
		end = offset + length
		if r.broken || base == 0 || base > math.MaxUint64-count || end > math.MaxUint32 {
			r.broken = true
			break
		}
		l := loggedBatch{extent: x.id, at: ring.Place{Serial: g.Serial, Offset: uint32(offset), Length: uint32(length)}}
		l.batch.Base, l.batch.Count = core.Seq(base), uint32(count)
		x.next = l.batch.Last() + 1
		batch(l)
	}
	if r.broken {
		return core.Errorf(core.CodeCorrupt, "group %d of the log is no summary of a segment", g.Number)
	}
	return nil
}

// summaryReader takes entries apart. Once broken, all that it returns is zero.
type summaryReader struct {
	b      []byte
	broken bool
}

func (r *summaryReader) number() uint64 {
	v, n := binary.Uvarint(r.b)
	return r.took(v, n)
}

// small is a number below 2³² − 1.
func (r *summaryReader) small() uint32 {
	v := r.number()
	if v >= math.MaxUint32 {
		r.b, r.broken = nil, true
		return 0
	}
	return uint32(v)
}

func (r *summaryReader) signed() int64 {
	v, n := binary.Varint(r.b)
	return int64(r.took(uint64(v), n))
}

func (r *summaryReader) took(v uint64, n int) uint64 {
	if n <= 0 {
		r.b, r.broken = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *summaryReader) id() (id core.ExtentID) {
	if len(r.b) < idLen {
		r.b, r.broken = nil, true
		return id
	}
	id.ID, r.b = core.ID(r.b[:idLen]), slices.Clip(r.b[idLen:])
	return id
}
