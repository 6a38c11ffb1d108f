package wire

import (
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/columbamq/columba/core"
)

// DueEntry says which record of a timer extent it is, and when it was enqueued (its batch's append time, unix µs).
type DueEntry struct {
	Seq      core.Seq
	Enqueued int64
}

// Due is TypeDue: records of a timer extent whose time has come, in the order in which they are due as far as the store
// knows. Body: n u32 | crc32c u32 of n and the entries | n × {seq u64 | enqueued i64} | records.
type Due struct {
	Entries []DueEntry
	Records []byte
}

const (
	dueFixedLen = 8 // n, crc
	dueEntryLen = 16
)

// MaxDueRecords bounds the records of one frame.
const MaxDueRecords = MaxBatchRecords

// DueLen is the size of a body of n records of recordsLen bytes in all: what it takes of the reader's credit.
func DueLen(n, recordsLen int) int { return dueFixedLen + n*dueEntryLen + recordsLen }

// Append writes the body.
func (d *Due) Append(dst []byte) []byte {
	dst = slices.Grow(dst, DueLen(len(d.Entries), len(d.Records)))
	return append(appendDueEntries(dst, d.Entries), d.Records...)
}

// AppendDueHead writes a Due frame up to its records, of recordsLen bytes, which the caller sends after it.
func AppendDueHead(dst []byte, stream uint32, flags uint16, entries []DueEntry, recordsLen int) []byte {
	dst = slices.Grow(dst, FrameHeaderLen+DueLen(len(entries), 0))
	dst = AppendFrameHeader(dst, TypeDue, flags, stream, DueLen(len(entries), recordsLen))
	return appendDueEntries(dst, entries)
}

func appendDueEntries(dst []byte, entries []DueEntry) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(entries)))
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	for _, e := range entries {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(e.Seq))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(e.Enqueued))
	}
	binary.LittleEndian.PutUint32(dst[at+4:], dueCRC(dst[at:]))
	return dst
}

// dueCRC is the checksum of a body's n and entries.
func dueCRC(head []byte) uint32 {
	return crc32.Update(crc32.Checksum(head[:4], castagnoli), castagnoli, head[dueFixedLen:])
}

// Decode reads a body into d, reusing Entries; Records aliases it. It checks that the records can be those of the
// entries; it does not look at the records themselves: see DecodeRecord. CodeBadRecord when the entries do not match
// their checksum.
func (d *Due) Decode(body []byte) error {
	c := cursor{b: body}
	n, sum := c.u32(), c.u32()
	*d = Due{Entries: d.Entries[:0]}
	if c.short || n == 0 || n > MaxDueRecords || uint64(n)*(dueEntryLen+RecordHeaderLen) > uint64(len(c.b)) {
		return errShort("due", len(body))
	}
	head := DueLen(int(n), 0)
	if dueCRC(body[:head]) != sum {
		return core.Errorf(core.CodeBadRecord, "%d due records do not match their checksum", n)
	}
	for range n {
		e := DueEntry{Seq: core.Seq(c.u64()), Enqueued: c.i64()}
		if e.Seq == 0 {
			return core.Errorf(core.CodeBadFrame, "a due record has seq 0")
		}
		d.Entries = append(d.Entries, e)
	}
	d.Records = c.b
	return nil
}
