package extentlog

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/columbamq/columba/core"
)

// A long backlog is spread over many tables, in each of which a reader would have to load a block or two, of what was
// before or of another extent, only to see that what it looks for is not there. So each block says which batches it
// holds. Tables without that, of earlier builds, are read as they always were.

// batchInterval names the property of blocks; it is part of the format.
const batchInterval = "columba.batches"

// intervals collects it for one table.
func intervals() pebble.BlockPropertyCollector {
	return sstable.NewBlockIntervalCollector(batchInterval, mapper{}, nil)
}

// mapper gives each batch a place on one line: extents by the checksum of their id, each with the bases of its batches
// in a row. Two extents may share a place, and the interval of a block with several extents holds others': then it is
// loaded in vain.
type mapper struct{}

// MapPointKey implements sstable.IntervalMapper.
func (mapper) MapPointKey(key sstable.InternalKey, _ []byte) (sstable.BlockInterval, error) {
	if k := key.UserKey; len(k) == batchKeyLen && k[0] == prefixBatch {
		at := linePlace(k[1:extentKeyLen], core.Seq(binary.BigEndian.Uint64(k[extentKeyLen:])))
		return sstable.BlockInterval{Lower: at, Upper: at + 1}, nil
	}
	return sstable.BlockInterval{}, nil // nobody looks for it by its place
}

// MapRangeKeys implements sstable.IntervalMapper.
func (mapper) MapRangeKeys(sstable.Span) (sstable.BlockInterval, error) {
	return sstable.BlockInterval{}, nil
}

// linePlace is the place of a base; those from the highest on share one.
func linePlace(id []byte, base core.Seq) uint64 {
	const highest = math.MaxUint32 - 1
	return uint64(crc32.ChecksumIEEE(id))<<32 | uint64(min(base, highest))
}

// within keeps an iterator from blocks that hold no batch of the extent with a base in from … upTo.
func within(id core.ExtentID, from, upTo core.Seq) []pebble.BlockPropertyFilter {
	return []pebble.BlockPropertyFilter{sstable.NewBlockIntervalFilter(batchInterval, linePlace(id.ID[:], from), linePlace(id.ID[:], upTo)+1, nil)}
}
