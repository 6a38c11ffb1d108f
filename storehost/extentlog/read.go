package extentlog

import (
	"bytes"
	"errors"

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
	b, err := e.readDisk(x, from, upTo, maxBytes, meanSize(s.Bytes, s.Last))
	if core.CodeOf(err) == core.CodeCorrupt {
		// A removal may have taken the bytes away meanwhile.
		if _, ok := x.state(); !ok {
			return nil, notFound(id)
		}
		e.quarantine(x, err.Error())
	}
	return b, err
}

// meanSize of a record, with its part of its batch's header.
func meanSize(bytes uint64, last core.Seq) uint64 { return max(bytes/max(uint64(last), 1), 1) }

// readDisk reads batches with a base in from … upTo, of records of about a size. It looks no further ahead than for as many as may fit: every
// table has a block to load for what comes later in it.
func (e *Engine) readDisk(x *extent, from, upTo core.Seq, maxBytes int, size uint64) ([]byte, error) {
	estimate := size * uint64(upTo-from+1)
	capacity := min(estimate+estimate/8, uint64(maxBytes))
	end := min(upTo, from+core.Seq(uint64(maxBytes)/size))
	iter, err := e.batchesFrom(x, from, end)
	if err != nil {
		return nil, err
	}
	defer iter.Close()
	out := make([]byte, 0, capacity)
	var last wire.BatchHeader
	for ; iter.Valid(); iter.Next() {
		b, err := current(x, iter)
		switch {
		case err != nil:
			return nil, err
		case b.Last() > upTo || len(out) > 0 && len(out)+len(b.Bytes) > maxBytes:
			return out, nil
		case len(out) == 0 && (b.Base > from || b.Last() < from):
			return nil, core.Errorf(core.CodeCorrupt, "extent %s: seq %d is missing on the disk", x.id, from)
		case len(out) > 0 && (b.Base != last.Last()+1 || wire.ExtendChecksum(last.Checksum, b.Records) != b.Checksum):
			return nil, core.Errorf(core.CodeCorrupt, "extent %s: batch %d does not continue the one that ends at %d", x.id, b.Base, last.Last())
		}
		if n, err := wire.CheckRecords(b.Records, wire.MaxPayload); err != nil || n != int(b.Count) {
			return nil, core.Errorf(core.CodeCorrupt, "extent %s: batch %d with %d of %d sound records: %w", x.id, b.Base, n, b.Count, err)
		}
		out, last = append(out, b.Bytes...), b.BatchHeader
		// Going on to a batch that does not fit would load it in vain: the next one is likely as large as this one.
		if b.Last() == upTo || len(out)+len(b.Bytes) > maxBytes {
			return out, nil
		}
	}
	if err := iter.Error(); err != nil {
		return nil, diskError(x, err)
	}
	if len(out) > 0 && last.Last() >= end {
		return out, nil
	}
	return nil, core.Errorf(core.CodeCorrupt, "extent %s: what follows seq %d is missing on the disk", x.id, last.Last())
}

// batchesFrom iterates from the batch that holds from on, up to upTo at least. Readers in order ask for the first seq of a batch; only others
// pay for the step back, for which Pebble copies the value, loads the one before it, and needs blocks that begin before what is asked for.
func (e *Engine) batchesFrom(x *extent, from, upTo core.Seq) (*pebble.Iterator, error) {
	key := batchKey(x.id, from)
	iter, err := e.db.NewIter(&pebble.IterOptions{LowerBound: key, UpperBound: batchKey(x.id, upTo+1), PointKeyFilters: within(x.id, from, upTo)})
	if err != nil {
		return nil, diskError(x, err)
	}
	if iter.First() && bytes.Equal(iter.Key(), key) {
		return iter, nil
	}
	if err := iter.Close(); err != nil {
		return nil, diskError(x, err)
	}
	if iter, err = e.batches(x); err != nil {
		return nil, err
	}
	if !iter.SeekGE(key) || !bytes.Equal(iter.Key(), key) {
		iter.SeekLT(key)
	}
	return iter, nil
}

// batches iterates over the extent. It pins tables and memtables: close it soon.
func (e *Engine) batches(x *extent) (*pebble.Iterator, error) {
	iter, err := e.db.NewIter(&pebble.IterOptions{LowerBound: extentKey(prefixBatch, x.id), UpperBound: afterExtent(prefixBatch, x.id)})
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
	iter, err := e.batches(x)
	if err != nil {
		return wire.BatchHeader{}, err
	}
	defer iter.Close()
	if !iter.SeekLT(batchKey(x.id, seq+1)) {
		if err := iter.Error(); err != nil {
			return wire.BatchHeader{}, diskError(x, err)
		}
		return wire.BatchHeader{}, core.Errorf(core.CodeCorrupt, "extent %s: seq %d is missing on the disk", x.id, seq)
	}
	b, err := current(x, iter)
	if err == nil && b.Last() < seq {
		err = core.Errorf(core.CodeCorrupt, "extent %s: seq %d is missing on the disk", x.id, seq)
	}
	return b.BatchHeader, err
}

// bytesFrom sums the sizes of the batches from base on.
func (e *Engine) bytesFrom(x *extent, base core.Seq) (uint64, error) {
	iter, err := e.batches(x)
	if err != nil {
		return 0, err
	}
	defer iter.Close()
	var sum uint64
	for iter.SeekGE(batchKey(x.id, base)); iter.Valid(); iter.Next() {
		b, err := current(x, iter)
		if err != nil {
			return 0, err
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
	low, high := core.Seq(1), s.Last+1
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

// diskError makes an I/O or checksum error of the database the extent's damage.
func diskError(x *extent, err error) error {
	if errors.Is(err, pebble.ErrClosed) {
		return errClosed()
	}
	return core.Errorf(core.CodeCorrupt, "extent %s cannot be read from the disk: %w", x.id, err)
}
