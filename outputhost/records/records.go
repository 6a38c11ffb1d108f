// Package records verifies the frames of a store, and decodes their records into the form that shares keep.
package records

import (
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/wire"
)

// Batch splits the first batch off, verifies its records, finds where each begins, when it expires and what it says of
// its history, all in one pass.
func Batch(b []byte) (batch wire.Batch, out dispatch.Records, rest []byte, err error) {
	if batch, err = wire.DecodeBatch(b); err != nil {
		return batch, out, nil, err
	}
	out = dispatch.Records{Base: batch.Base, Offsets: make([]uint32, 0, batch.Count+1), Enqueued: batch.AppendTime}
	at := 0
	var r wire.Record
	for i := range int(batch.Count) {
		out.Offsets = append(out.Offsets, uint32(at))
		if n := wire.IDOnlyRecord(batch.Records[at:]); n > 0 {
			at += n
			continue
		}
		n, err := wire.DecodeRecord(batch.Records[at:], &r)
		if err != nil {
			return batch, out, nil, err
		}
		at += n
		if r.Origin.Seq > 0 {
			set(&out.History, int(batch.Count), i, historyOf(&r))
		}
		if r.ExpireAt != 0 {
			set(&out.Expire, int(batch.Count), i, r.ExpireAt)
		}
	}
	end := wire.BatchHeaderLen + at
	batch.Bytes, batch.Records = b[:end:end], b[wire.BatchHeaderLen:end:end]
	out.Offsets, out.Bytes = append(out.Offsets, uint32(at)), batch.Records
	return batch, out, b[end:], nil
}

// Due verifies the body of a due frame; the records' bytes are its own.
func Due(body []byte) (out dispatch.DueRecords, err error) {
	var d wire.Due
	if err := d.Decode(body); err != nil {
		return out, err
	}
	n := len(d.Entries)
	times := make([]int64, 2*n)
	out = dispatch.DueRecords{
		Seqs: make([]core.Seq, n), Offsets: make([]uint32, n+1), Bytes: d.Records, DeliverAt: times[:n:n], Enqueued: times[n:],
	}
	at := 0
	var r wire.Record
	for i, e := range d.Entries {
		size, err := wire.DecodeRecord(d.Records[at:], &r)
		if err != nil {
			return out, core.Errorf(core.CodeOf(err), "due record of seq %d: %w", e.Seq, err)
		}
		at += size
		out.Seqs[i], out.Offsets[i+1], out.DeliverAt[i], out.Enqueued[i] = e.Seq, uint32(at), r.DeliverAt, e.Enqueued
		if r.Origin.Seq > 0 {
			set(&out.History, n, i, historyOf(&r))
		}
		if r.ExpireAt != 0 {
			set(&out.Expire, n, i, r.ExpireAt)
		}
	}
	if at != len(d.Records) {
		return out, core.Errorf(core.CodeBadFrame, "%d bytes follow %d due records", len(d.Records)-at, n)
	}
	return out, nil
}

// set makes v the i-th of n values, most of which are zero: the first that is not makes the room for all.
func set[T any](all *[]T, n, i int, v T) {
	if *all == nil {
		*all = make([]T, n)
	}
	(*all)[i] = v
}

// historyOf is what the record of a message in a retry queue, or of a dead letter, says of its earlier attempts.
func historyOf(r *wire.Record) dispatch.History {
	p := wire.ReadHistory(r.Extra)
	return dispatch.History{Origin: r.Origin, Attempts: r.Attempts, Settled: p.Settled, NotCounted: p.NotCounted, Unsure: p.Unsure, LockTimedOut: string(r.ReasonCode) == dispatch.LockTimedOut.String()}
}
