package bitflip

import (
	"encoding/binary"
	"hash/crc32"
)

// Layout of a file of records, as a manifest is: blocks of 32 KiB with chunks, none of which goes beyond its block. A
// block ends with zeros where no chunk begins.
//
//	┌──────────────┬────────────┬─────────┬───────┐
//	│ checksum u32 │ length u16 │ type u8 │ bytes │
//	└──────────────┴────────────┴─────────┴───────┘
const (
	recordsBlock = 32 << 10
	chunkHeader  = 7
	chunkTypes   = 4 // 1: a record; 2, 3, 4: the first part of one, a middle part, the last part
	firstChunk   = 2 // types up to here begin a record
)

// Verdict is what is known of a file of records.
type Verdict int

// Verdicts.
const (
	Whole   Verdict = iota // all chunks are sound, now that the fixes are made
	Torn                   // the last record is not whole, as a crash leaves it: no sound chunk behind it begins another one
	Damaged                // a chunk that cannot be corrected is before another record, which was written once this one was synced
)

// Records corrects b, a file of records, one flipped bit in each chunk.
func Records(b []byte) (fixes []Fix, verdict Verdict) {
	for at := 0; at < len(b); {
		left := recordsBlock - at%recordsBlock
		if left < chunkHeader {
			at += left
			continue
		}
		if zero(b[at:min(at+left, len(b))]) {
			if left >= 2*chunkHeader && zero(b[at:]) {
				return fixes, Whole // space that was kept for more
			}
			if left < 19 { // no chunk of any kind fits there
				at += left
				continue
			}
		}
		size, fix, ok := chunk(b[at:min(at+left, len(b))], int64(at))
		if !ok {
			if soundBehind(b, at+1) {
				return fixes, Damaged
			}
			return fixes, Torn
		}
		fixes = append(fixes, fix...)
		at += size
	}
	return fixes, Whole
}

// chunk corrects the chunk at the beginning of b, which is at an offset of the file.
func chunk(b []byte, offset int64) (size int, fix []Fix, ok bool) {
	if len(b) < chunkHeader {
		return 0, nil, false
	}
	length := binary.LittleEndian.Uint16(b[4:])
	if size = chunkHeader + int(length); size <= len(b) {
		if fix, ok = correct(b[6:size], offset+6, b[:4], offset); ok {
			if 1 <= b[6] && b[6] <= chunkTypes {
				return size, fix, true
			}
			return 0, nil, false
		}
	}
	for bit := range 16 {
		binary.LittleEndian.PutUint16(b[4:], length^1<<bit)
		if size, ok := sound(b); ok {
			at := 4 + bit/8
			return size, []Fix{{offset + int64(at), b[at]}}, true
		}
	}
	binary.LittleEndian.PutUint16(b[4:], length)
	return 0, nil, false
}

// sound reports whether a chunk begins at the beginning of b, and how long it is.
func sound(b []byte) (size int, ok bool) {
	if len(b) < chunkHeader || b[6] < 1 || b[6] > chunkTypes {
		return 0, false
	}
	size = chunkHeader + int(binary.LittleEndian.Uint16(b[4:]))
	if size > len(b) || mask(crc32.Checksum(b[6:size], table)) != binary.LittleEndian.Uint32(b) {
		return 0, false
	}
	return size, true
}

// soundBehind looks for a sound chunk, from an offset on, with which a record begins.
func soundBehind(b []byte, from int) bool {
	for at := from; at < len(b); at++ {
		end := min(at+recordsBlock-at%recordsBlock, len(b))
		if _, ok := sound(b[at:end]); ok && b[at+6] <= firstChunk {
			return true
		}
	}
	return false
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
