// Package bitflip corrects single flipped bits in the files of a Pebble database, by the checksums that these have.
package bitflip

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// Fix is one byte of a file that has to be another one.
type Fix struct {
	Offset int64
	Byte   byte
}

var table = crc32.MakeTable(crc32.Castagnoli)

// maskDelta is what Pebble adds to a rotated checksum before it stores that.
const maskDelta = 0xa282ead8

func mask(crc uint32) uint32 { return bits.RotateLeft32(crc, -15) + maskDelta }

func unmask(stored uint32) uint32 { return bits.RotateLeft32(stored-maskDelta, 15) }

// single finds the one bit by which data differ from those that have a checksum. Two flipped bits of the data never
// look like one, as long as there are fewer than 2³¹ bits. Other damage does so once in 2³² divided by the bits of the
// data.
func single(data []byte, stored uint32) (at int, bit byte, found bool) {
	differs := crc32.Checksum(data, table) ^ unmask(stored)
	var change [8]uint32 // of the checksum, by each bit of the byte
	for i := range change {
		change[i] = table[1<<i]
	}
	for at = len(data) - 1; at >= 0; at-- {
		for i, c := range change {
			if c == differs {
				return at, 1 << i, true
			}
			change[i] = c>>8 ^ table[byte(c)]
		}
	}
	return 0, 0, false
}

// correct corrects one bit of data, or of the checksum that is stored for them, as a little-endian u32. It returns what
// it has changed, with the offsets of data and stored added. ok is false, and nothing is changed, when it is not one
// bit. Without a flipped bit, ok is true and there is no fix.
func correct(data []byte, dataAt int64, stored []byte, storedAt int64) (fix []Fix, ok bool) {
	want := binary.LittleEndian.Uint32(stored)
	is := mask(crc32.Checksum(data, table))
	if is == want {
		return nil, true
	}
	if differs := is ^ want; bits.OnesCount32(differs) == 1 {
		at := bits.TrailingZeros32(differs) / 8
		binary.LittleEndian.PutUint32(stored, is)
		return []Fix{{storedAt + int64(at), stored[at]}}, true
	}
	at, bit, found := single(data, want)
	if !found {
		return nil, false
	}
	data[at] ^= bit
	return []Fix{{dataAt + int64(at), data[at]}}, true
}
