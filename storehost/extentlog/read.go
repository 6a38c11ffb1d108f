package extentlog

import (
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Read implements Log. Bytes from the tail are shared with other readers, so nobody may change them.
func (e *Engine) Read(id core.ExtentID, from, upTo core.Seq, maxBytes int) ([]byte, error) {
	x := e.extent(id)
	if x == nil {
		return nil, notFound(id)
	}
	s, ok := x.state()
	switch {
	case !ok:
		return nil, notFound(id)
	case s.Damaged:
		return nil, damaged(id)
	}
	from, upTo = max(from, 1), min(upTo, s.Last)
	if from > upTo {
		return nil, nil
	}
	if b, ok := x.tail.read(from, upTo, maxBytes); ok {
		return b, nil
	}
	done, err := e.reading()
	if err != nil {
		return nil, err
	}
	defer done()
	size := meanSize(s.Bytes, s.Last)
	b, held, drained, err := e.readRing(x, from, upTo, maxBytes)
	if !held {
		b, err = e.readOn(place{x, from}, min(upTo, drained), maxBytes, size)
	}
	if core.CodeOf(err) == core.CodeCorrupt {
		// A removal may have taken the bytes away meanwhile, or a seal those beyond it.
		if _, ok := x.state(); !ok {
			return nil, notFound(id)
		}
		if end, ok := x.truncated(); ok && end < upTo {
			return e.Read(id, from, end, maxBytes)
		}
		e.quarantine(x, err.Error(), false)
	}
	return b, err
}

// meanSize of a record, with its part of its batch's header.
func meanSize(bytes uint64, last core.Seq) uint64 { return max(bytes/max(uint64(last), 1), 1) }

// readStored reads batches with a base in from … upTo, of records of about a size: at least one if there is any, and
// all from the ring, or all from the database.
func (e *Engine) readStored(x *extent, from, upTo core.Seq, maxBytes int, size uint64) ([]byte, error) {
	b, held, drained, err := e.readRing(x, from, upTo, maxBytes)
	if held {
		return b, err
	}
	return e.readDisk(x, from, min(upTo, drained), maxBytes, size)
}

// readDisk reads batches with a base in from … upTo, of records of about a size. It looks no further ahead than for as
// many as may fit: every table has a block to load for what comes later in it.
func (e *Engine) readDisk(x *extent, from, upTo core.Seq, maxBytes int, size uint64) ([]byte, error) {
	c, err := e.openCursor(place{x, from}, min(upTo, from+core.Seq(uint64(maxBytes)/size)))
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.read(upTo, maxBytes, size)
}

// readOn is readDisk for those who go on where it ended.
func (e *Engine) readOn(p place, upTo core.Seq, maxBytes int, size uint64) ([]byte, error) {
	c := e.cursors.take(p)
	if c == nil || c.iter == nil {
		window, about := 1, size
		if c != nil {
			window, about = min(2*c.window, maxWindow), max(size, c.size)
		}
		ahead := min(window*min(maxBytes, maxAhead), maxAhead)
		var err error
		if c, err = e.openCursor(p, min(upTo, p.next+core.Seq(uint64(ahead)/about))); err != nil {
			return nil, err
		}
		c.window = window
	}
	b, err := c.read(upTo, maxBytes, size)
	if err != nil || c.next > upTo || time.Since(c.opened) > cursorAge {
		c.close()
		return b, err
	}
	c.look(p.next, len(b), size)
	if c.wide || c.ahead <= maxBytes/2 {
		c.close() // what is left is not worth a piece; who goes on here looks further
		c.ahead = 0
	}
	e.cursors.keep(c)
	return b, nil
}

// batches iterates over the extent. It pins tables and memtables: close it soon.
func (e *Engine) batches(x *extent) (*pebble.Iterator, error) {
	iter, err := e.iterate(&pebble.IterOptions{LowerBound: extentKey(prefixBatch, x.id), UpperBound: afterExtent(prefixBatch, x.id)})
	if err != nil {
		return nil, diskError(x, err)
	}
	return iter, nil
}

// current is the batch under the iterator; its bytes are valid until the iterator moves.
func current(x *extent, iter *pebble.Iterator) (wire.Batch, error) {
	value, err := iter.ValueAndErr()
	if err != nil {
		return wire.Batch{}, diskError(x, err)
	}
	b, err := wire.DecodeBatch(value)
	if err != nil {
		return wire.Batch{}, core.Errorf(core.CodeCorrupt, "extent %s: a batch on the disk is damaged: %w", x.id, err)
	}
	return b, nil
}

// batchAt is the header of the batch that holds seq.
func (e *Engine) batchAt(x *extent, seq core.Seq) (wire.BatchHeader, error) {
	if held, ok, _, err := e.readRing(x, seq, math.MaxUint64, 1); ok {
		if err != nil {
			return wire.BatchHeader{}, err
		}
		b, err := wire.DecodeBatch(held)
		return b.BatchHeader, err
	}
	return e.batchInDatabase(x, seq)
}

// batchInDatabase is batchAt for a batch that the database has.
func (e *Engine) batchInDatabase(x *extent, seq core.Seq) (wire.BatchHeader, error) {
	iter, err := e.batches(x)
	if err != nil {
		return wire.BatchHeader{}, err
	}
	defer iter.Close()
	if !iter.SeekLT(batchKey(x.id, seq+1)) {
		if err := iter.Error(); err != nil {
			return wire.BatchHeader{}, diskError(x, err)
		}
		return wire.BatchHeader{}, missing(x.id, seq)
	}
	b, err := current(x, iter)
	if err == nil && b.Last() < seq {
		err = missing(x.id, seq)
	}
	return b.BatchHeader, err
}

// bytesFrom sums the sizes of the batches from base on.
func (e *Engine) bytesFrom(x *extent, base core.Seq) (sum uint64, err error) {
	run, _, drained := x.held.from(max(base, x.held.drained(x.next.last)+1))
	for _, b := range run {
		sum += uint64(b.length)
	}
	iter, err := e.batches(x)
	if err != nil {
		return 0, err
	}
	defer iter.Close()
	for iter.SeekGE(batchKey(x.id, base)); iter.Valid(); iter.Next() {
		b, err := current(x, iter)
		if err != nil {
			return 0, err
		}
		if b.Base > drained {
			break // the ring has it, too
		}
		sum += uint64(len(b.Bytes))
	}
	if err := iter.Error(); err != nil {
		return 0, diskError(x, err)
	}
	return sum, nil
}

// Seek implements Log: a binary search over the batches, whose append times never go back.
func (e *Engine) Seek(id core.ExtentID, t int64) (core.Seq, error) {
	done, err := e.reading()
	if err != nil {
		return 0, err
	}
	defer done()
	x := e.extent(id)
	if x == nil {
		return 0, notFound(id)
	}
	s, ok := x.state()
	switch {
	case !ok:
		return 0, notFound(id)
	case s.Damaged:
		return 0, damaged(id)
	}
	for {
		last := s.Last
		if end, ok := x.truncated(); ok { // a seal may take away what the state still speaks of
			last = min(last, end)
		}
		seq, err := e.seek(x, last, t)
		if core.CodeOf(err) != core.CodeCorrupt {
			return seq, err
		}
		if _, ok := x.state(); !ok { // a removal took the bytes away meanwhile
			return 0, notFound(id)
		}
		if end, ok := x.truncated(); !ok || end >= last {
			return 0, err
		}
	}
}

func (e *Engine) seek(x *extent, last core.Seq, t int64) (core.Seq, error) {
	low, high := core.Seq(1), last+1
	for low < high {
		b, err := e.batchAt(x, low+(high-low)/2)
		if err != nil {
			return 0, err
		}
		if b.AppendTime >= t {
			high = b.Base
		} else {
			low = b.Last() + 1
		}
	}
	return low, nil
}
