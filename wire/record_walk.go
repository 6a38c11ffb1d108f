package wire

import (
	"encoding/binary"

	"github.com/columbamq/columba/core"
)

// NextRecord splits the first encoded record off b by its length alone, without verifying its CRC.
func NextRecord(b []byte) (record, rest []byte, err error) {
	n, err := recordSize(b)
	if err != nil {
		return nil, nil, err
	}
	return b[:n:n], b[n:], nil
}

// CheckRecords verifies that b is whole, valid records (lengths, CRCs, flags; payload ≤ maxPayload) and counts them.
// The codes are those of DecodeRecord, and CodeTooLarge for a payload over maxPayload or more than MaxBatchRecords records.
// Never allocates on success.
func CheckRecords(b []byte, maxPayload int) (count int, err error) {
	var r Record
	for len(b) > 0 {
		if count == MaxBatchRecords {
			return 0, core.Errorf(core.CodeTooLarge, "more than %d records in one batch; send them in several", MaxBatchRecords)
		}
		if n := idOnlyRecord(b); n > 0 && n-RecordHeaderLen-len(core.ID{}) <= min(maxPayload, MaxPayload) {
			b = b[n:]
			count++
			continue
		}
		n, err := DecodeRecord(b, &r)
		if err != nil {
			return 0, core.Errorf(core.CodeOf(err), "record %d of the batch: %w", count+1, err)
		}
		if len(r.Payload) > maxPayload {
			return 0, core.Errorf(core.CodeTooLarge, "payload of record %d of the batch has %d bytes; this queue takes at most %d",
				count+1, len(r.Payload), maxPayload)
		}
		b = b[n:]
		count++
	}
	return count, nil
}

// idOnlyRecord is the size of the first record of b if that is sound and has no attribute but an id, as most do; else 0.
func idOnlyRecord(b []byte) int {
	const least = RecordHeaderLen + len(core.ID{})
	if len(b) < least || binary.LittleEndian.Uint32(b[8:]) != recordID || binary.LittleEndian.Uint32(b[12:]) != uint32(len(core.ID{})) {
		return 0
	}
	n := int64(binary.LittleEndian.Uint32(b)) + 8
	if n < int64(least) || n > int64(len(b)) || n > MaxRecord || core.ID(b[RecordHeaderLen:]).IsZero() || binary.LittleEndian.Uint32(b[4:]) != recordCRC(b[:n]) {
		return 0
	}
	return int(n)
}

// Timed reports whether any of whole, valid records has a deliver_at or a delay.
func Timed(records []byte) bool {
	for len(records) > 0 {
		if binary.LittleEndian.Uint32(records[8:])&(recordDeliverAt|recordDelay) != 0 {
			return true
		}
		n, err := recordSize(records)
		if err != nil {
			return false
		}
		records = records[n:]
	}
	return false
}

// PayloadOf is the payload of one encoded record whose CRC was verified before.
func PayloadOf(record []byte) []byte {
	return record[RecordHeaderLen+int(binary.LittleEndian.Uint16(record[12:])):]
}
