package pebble

import (
	"encoding/binary"
	"time"

	"github.com/columbamq/columba/metadata"
)

// Keys of the engine, told apart by their first byte. The parts of a row's key hold no zero byte, so a zero between
// them keeps both their order and their borders.
//
//	0x00 "format"                                   → format version, 4 bytes
//	0x01 table 0x00 partition 0x00 row              → metadata.Cell
//	0x02 µs since 1970, 8 bytes │ key of a row      → empty: the row may be forgotten from then on
const (
	formatKey   = "\x00format"
	prefixRow   = 0x01
	prefixSweep = 0x02
)

// partitionPrefix is how the keys of all rows of a partition begin.
func partitionPrefix(t metadata.Table, partition string) []byte {
	b := make([]byte, 0, len(t.Name)+len(partition)+3)
	b = append(append(b, prefixRow), t.Name...)
	b = append(append(b, 0), partition...)
	return append(b, 0)
}

func rowKey(t metadata.Table, k metadata.Key) []byte {
	return append(partitionPrefix(t, k.Partition), k.Row...)
}

// partitionEnd is the first key after all of a partition's.
func partitionEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	end[len(end)-1] = 1
	return end
}

func sweepKey(at time.Time, row []byte) []byte {
	b := make([]byte, 0, 9+len(row))
	return append(binary.BigEndian.AppendUint64(append(b, prefixSweep), uint64(at.UnixMicro())), row...)
}

// sweptRow is the key of the row that a sweep key names.
func sweptRow(key []byte) []byte {
	if len(key) < 9 {
		return nil
	}
	return key[9:]
}
