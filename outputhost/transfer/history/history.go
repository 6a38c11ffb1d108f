// Package history encodes the earlier attempts of a message into the records of dead letters and delayed retries.
package history

import (
	"math"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/wire"
)

// Copy tells one transfer of a message to a queue from all others: records that have the same one are copies. A message
// that was merged back has a new origin, one of a group that was sent back is in another epoch, and each delayed retry
// of a life has other attempts. A message is dead-lettered once in a life, and there attempts are 0: after a crash a
// later owner may know of more of them.
type Copy struct {
	Origin   core.Receipt
	Epoch    uint64
	Attempts uint16
}

// CopyOf reads which transfer to a queue made the record.
func CopyOf(to dispatch.Destination, r *wire.Record) Copy {
	c := Copy{Origin: r.Origin, Epoch: wire.ReadHistory(r.Extra).Epoch}
	if to == dispatch.RetryQueue {
		c.Attempts = r.Attempts
	}
	return c
}

// epochOf is the epoch that the life of a message belongs to, in an epoch of its group.
func epochOf(of dispatch.Source, r *wire.Record, epoch uint64) uint64 {
	switch { // two lives of a message, of different epochs, stay apart
	case of.Returning:
		return wire.ReadHistory(r.Extra).Epoch
	case of.Merged: // it has one life in all epochs
		return 0
	}
	return epoch
}

// Record is the record for a built-in queue of a message and what became of it, in an epoch of its group. Its key and
// its priority stay as they are in the message's own record; what a record has no field for, like the lane of a queue
// that has several, goes into its extra fields, as wire.History does.
func Record(t dispatch.Transfer, consumer string, epoch uint64) (*wire.Record, error) {
	r, before, err := decode(t.Of, t.Seq, t.Record, t.Enqueued)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "message %d of extent %s, for the %s: %w", t.Seq, t.Of.Extent, t.To, err)
	}
	life := wire.History{Epoch: epochOf(t.Of, r, epoch)}
	if r.FirstEnqueue == 0 {
		r.FirstEnqueue = t.Enqueued
	}
	r.Attempts = uint16(min(uint32(before)+uint32(t.Attempts), math.MaxUint16))
	r.DeliverAt, r.Delay = 0, 0 // a dead letter is there at once
	if t.To == dispatch.RetryQueue {
		r.DeliverAt = core.UnixMillis(t.Due)
		life.Settled, life.NotCounted, life.Unsure = before, t.NotCounted, t.Unsure
	} else if t.Failure == dispatch.Expired {
		r.ExpireAt = 0 // else nobody would get it from there
	}
	if t.To == dispatch.DeadLetterQueue && life.Epoch == 0 {
		r.Extra = wire.WithoutHistory(r.Extra)
	} else {
		r.Extra = wire.WithHistory(r.Extra, life)
	}
	if t.Metadata != nil {
		r.Metadata = t.Metadata
	}
	say(r, t.Failure, t.Text, consumer)
	return r, nil
}

// decode reads a record, and how many of its attempts are of a life before this one: one that was merged back from the
// dead letter queue begins to count anew, and its record keeps how that one ended.
func decode(of dispatch.Source, seq core.Seq, record []byte, since int64) (r *wire.Record, before uint16, err error) {
	r = new(wire.Record)
	if _, err := wire.DecodeRecord(record, r); err != nil {
		return nil, 0, err
	}
	if of.Returning {
		return r, wire.ReadHistory(r.Extra).Settled, nil
	}
	if len(r.ReasonCode) > 0 {
		r.Extra = withLife(r, since)
	}
	r.Origin = core.Receipt{Extent: of.Extent, Seq: seq}
	return r, r.Attempts, nil
}

// withLife is the extra of a record that was a dead letter since then, and was merged: with what it has to say of that
// life, if there is room.
func withLife(r *wire.Record, since int64) []byte {
	attempts := r.Attempts
	if before := wire.Lives(r.Extra); len(before) > 0 {
		attempts -= min(attempts, before[len(before)-1].Total)
	}
	extra := wire.AppendLife(r.Extra, wire.Life{Attempts: attempts, Total: r.Attempts, DeadSince: max(since, 0), ReasonCode: r.ReasonCode, Reason: r.Reason, LastConsumer: r.LastConsumer})
	const others = 4 << 10 // what the other attributes of bounded size take, and more
	if len(extra)+len(r.Headers)+len(r.Metadata) > wire.MaxAttributes-others {
		return r.Extra
	}
	return extra
}

// say notes why the last attempt failed. Where a record has no room for all attributes, what was said goes first.
func say(r *wire.Record, f dispatch.Failure, text, consumer string) {
	r.ReasonCode, r.Reason, r.LastConsumer = []byte(f.String()), []byte(text), []byte(consumer)
	for _, drop := range []*[]byte{&r.Reason, &r.LastConsumer, &r.Metadata} {
		if r.AttributesLen() <= wire.MaxAttributes {
			return
		}
		*drop = nil
	}
}
