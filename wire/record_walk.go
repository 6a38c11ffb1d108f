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
// The codes are those of DecodeRecord, and CodeTooLarge for a payload over maxPayload or more than MaxBatchRecords
// records. Never allocates on success.
func CheckRecords(b []byte, maxPayload int) (count int, err error) {
	count, _, err = CheckPublished(b, maxPayload, true)
	return count, err
}

// CheckPublished is CheckRecords, and reports whether any record has a deliver_at or a delay. Only hosts may publish
// records with attributes of earlier attempts; others get CodeBadArgument.
func CheckPublished(b []byte, maxPayload int, host bool) (count int, timed bool, err error) {
	var r Record
	for len(b) > 0 {
		if count == MaxBatchRecords {
			return 0, false, core.Errorf(core.CodeTooLarge, "more than %d records in one batch; send them in several", MaxBatchRecords)
		}
		if n := IDOnlyRecord(b); n > 0 && n-idOnlyLen <= maxPayload {
			b = b[n:]
			count++
			continue
		}
		n, err := DecodeRecord(b, &r)
		if err != nil {
			return 0, false, core.Errorf(core.CodeOf(err), "record %d of the batch: %w", count+1, err)
		}
		if !host && r.hasPast() {
			return 0, false, core.Errorf(core.CodeBadArgument, "record %d of the batch has fields of an earlier delivery, like attempts, an origin or a reason, and only hosts set those; publish it without them", count+1)
		}
		if !host {
			if err := r.checkPublished(); err != nil {
				return 0, false, core.Errorf(core.CodeOf(err), "record %d of the batch: %w", count+1, err)
			}
		}
		if len(r.Payload) > maxPayload {
			return 0, false, core.Errorf(core.CodeTooLarge, "payload of record %d of the batch has %d bytes; this queue takes at most %d",
				count+1, len(r.Payload), maxPayload)
		}
		timed = timed || r.DeliverAt|r.Delay != 0
		b = b[n:]
		count++
	}
	return count, timed, nil
}

// AppendPublished is AppendRecord for a record that somebody publishes: its attributes have MaxPublished bytes at most,
// so that a built-in queue can hold it with what became of it.
func AppendPublished(dst []byte, r *Record) ([]byte, error) {
	if err := r.checkPublished(); err != nil {
		return dst, err
	}
	return AppendRecord(dst, r)
}

func (r *Record) checkPublished() error {
	if n := r.AttributesLen(); n > MaxPublished {
		return core.Errorf(core.CodeTooLarge, "headers, key and the other attributes have %d bytes; at most %d are allowed", n, MaxPublished)
	}
	return nil
}

// hasPast reports whether the record says of the message what only a host knows that appends it to a built-in queue.
func (r *Record) hasPast() bool {
	for f := range allExtra(r.Extra) {
		if f.kind == extraLife || f.kind == extraHistory {
			return true
		}
	}
	return r.Attempts != 0 || r.Polls != 0 || r.FirstEnqueue != 0 || r.Origin != core.Receipt{} || len(r.ReasonCode)+len(r.Reason)+len(r.LastConsumer) > 0
}

// idOnlyLen is the size of a record without payload that has an id and no other attribute.
const idOnlyLen = RecordHeaderLen + len(core.ID{})

// IDOnlyRecord is the size of the first record of b if that is sound and has no attribute but an id, as most do; else
// 0: then DecodeRecord tells. It costs less, as it fills no Record.
func IDOnlyRecord(b []byte) int {
	if len(b) < idOnlyLen || binary.LittleEndian.Uint32(b[8:]) != recordID || binary.LittleEndian.Uint32(b[12:]) != uint32(len(core.ID{})) {
		return 0
	}
	n, err := recordSize(b)
	if err != nil || n < idOnlyLen || n-idOnlyLen > MaxPayload || core.ID(b[RecordHeaderLen:]).IsZero() || binary.LittleEndian.Uint32(b[4:]) != recordCRC(b[:n]) {
		return 0
	}
	return n
}

// PayloadOf is the payload of one encoded record whose CRC was verified before.
func PayloadOf(record []byte) []byte {
	return record[RecordHeaderLen+int(binary.LittleEndian.Uint16(record[12:])):]
}
