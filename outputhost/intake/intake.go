// Package intake owns what becomes of the frames of a store: records that were verified, in the form in which a share takes them.
package intake

import (
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/wire"
)

// Batch splits the first batch off, verifies its records, finds where each begins, when it expires and what it says of its past, all in one pass.
func Batch(b []byte) (batch wire.Batch, records dispatch.Records, rest []byte, err error) {
	if batch, err = wire.DecodeBatch(b); err != nil {
		return batch, records, nil, err
	}
	records = dispatch.Records{Base: batch.Base, Offsets: make([]uint32, 0, batch.Count+1), Enqueued: batch.AppendTime}
	at := 0
	var r wire.Record
	for i := range batch.Count {
		records.Offsets = append(records.Offsets, uint32(at))
		n, err := wire.DecodeRecord(batch.Records[at:], &r)
		if err != nil {
			return batch, records, nil, err
		}
		at += n
		if r.Origin.Seq > 0 {
			if records.Past == nil {
				records.Past = make([]dispatch.Past, batch.Count)
			}
			records.Past[i] = pastOf(&r)
		}
		if r.ExpireAt == 0 {
			continue
		}
		if records.Expire == nil {
			records.Expire = make([]int64, batch.Count)
		}
		records.Expire[i] = r.ExpireAt
	}
	end := wire.BatchHeaderLen + at
	batch.Bytes, batch.Records = b[:end:end], b[wire.BatchHeaderLen:end:end]
	records.Offsets, records.Bytes = append(records.Offsets, uint32(at)), batch.Records
	return batch, records, b[end:], nil
}

// Due verifies the body of a due frame; the records' bytes are its own.
func Due(body []byte) (records dispatch.DueRecords, err error) {
	var d wire.Due
	if err := d.Decode(body); err != nil {
		return records, err
	}
	n := len(d.Entries)
	times := make([]int64, 2*n)
	records = dispatch.DueRecords{
		Seqs: make([]core.Seq, n), Offsets: make([]uint32, n+1), Bytes: d.Records, DeliverAt: times[:n:n], Enqueued: times[n:],
	}
	at := 0
	var r wire.Record
	for i, e := range d.Entries {
		size, err := wire.DecodeRecord(d.Records[at:], &r)
		if err != nil {
			return records, core.Errorf(core.CodeOf(err), "due record of seq %d: %w", e.Seq, err)
		}
		at += size
		records.Seqs[i], records.Offsets[i+1], records.DeliverAt[i], records.Enqueued[i] = e.Seq, uint32(at), r.DeliverAt, e.Enqueued
		if r.Origin.Seq > 0 {
			if records.Past == nil {
				records.Past = make([]dispatch.Past, n)
			}
			records.Past[i] = pastOf(&r)
		}
		if r.ExpireAt == 0 {
			continue
		}
		if records.Expire == nil {
			records.Expire = make([]int64, n)
		}
		records.Expire[i] = r.ExpireAt
	}
	if at != len(d.Records) {
		return records, core.Errorf(core.CodeBadFrame, "%d bytes follow %d due records", len(d.Records)-at, n)
	}
	return records, nil
}

// pastOf is what a record says of a message that was parked, or is a dead letter.
func pastOf(r *wire.Record) dispatch.Past {
	p := wire.ReadPast(r.Extra)
	return dispatch.Past{Origin: r.Origin, Attempts: r.Attempts, Settled: p.Settled, Excused: p.Excused, Epoch: p.Epoch}
}
