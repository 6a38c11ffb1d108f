package client

import (
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Delivery is one delivery of one message. It stays valid for as long as it is kept. Safe for concurrent use; only the
// first of Ack, Nack, Reject and Release counts.
type Delivery struct {
	Body     []byte
	ID       MessageID
	Attempt  int // from 1
	Enqueued time.Time
	Receipt  core.Receipt
	Token    string // with the option WithTokens only

	attributes *attributes // nil: none of them

	slab    *slab                // that it came with
	lock    atomic.Pointer[lock] // nil: as it was handed out
	handle  uint32
	size    int // encoded bytes
	settled atomic.Bool
}

// attributes are those of a message that most do not have.
type attributes struct{ key, headers, metadata, traceParent []byte }

// attributesOf is nil for a record without any.
func attributesOf(r *wire.Record) *attributes {
	if len(r.Key)+len(r.Headers)+len(r.Metadata)+len(r.TraceParent) == 0 {
		return nil
	}
	return &attributes{r.Key, r.Headers, r.Metadata, r.TraceParent}
}

// Refusal is a settlement that could not be applied.
type Refusal struct {
	Receipt core.Receipt
	Attempt int
	Err     error
}

// Key is the key of the message, "" if it has none.
func (d *Delivery) Key() string {
	if d.attributes == nil {
		return ""
	}
	return string(d.attributes.key)
}

// Headers decodes the message's headers into a new map; nil if there are none.
func (d *Delivery) Headers() map[string]string {
	if d.attributes == nil || len(d.attributes.headers) == 0 {
		return nil
	}
	out := make(map[string]string)
	wire.EachHeader(d.attributes.headers, func(name, value []byte) bool { // its form was checked with the record
		out[string(name)] = string(value)
		return true
	})
	return out
}

// Metadata is the metadata that an earlier Nack gave the message; nil without any.
func (d *Delivery) Metadata() []byte {
	if d.attributes == nil {
		return nil
	}
	return d.attributes.metadata
}

// TraceParent is the producer's trace context.
func (d *Delivery) TraceParent() string {
	if d.attributes == nil {
		return ""
	}
	return string(d.attributes.traceParent)
}

// Ack marks the message as done for the group. It returns at once. It returns ErrStale if this delivery was settled
// before, or if its connection is lost and the ack cannot be sent through another host, for instance because the
// consumer is closed.
//
// The client sends the ack in the background. If the connection is lost, the client sends it through another host,
// until the lock ends and for at least 10 seconds. Flush waits until the host has applied it. OnRefused is called when
// it could not be applied:
//
//   - ErrStale: the host refused it, or it could not be sent in time. The message is delivered again, or another
//     consumer has it.
//   - ErrUnavailable: it could not be sent on another connection, or too many settlements are waiting (100,000, or 16
//     MiB). The message is delivered again.
//   - ErrUnknownOutcome: the answer was lost. The ack may or may not have been applied.
func (d *Delivery) Ack() error {
	if err := d.settle(); err != nil {
		return err
	}
	if !d.slab.stream.out.ack(d.handle, d.Receipt.Seq, uint16(d.Attempt)) {
		return d.elsewhere(settlement{verb: wire.TypeAck})
	}
	return nil
}

// Nack reports that the attempt failed. The message is delivered again after the group's backoff, or after the delay of
// After, unless this was its last attempt. Errors as of Ack; also ErrTooLarge for metadata above 16 KiB and
// ErrBadArgument for a delay that is negative or above 12 h.
func (d *Delivery) Nack(opts ...NackOption) error {
	o := nackOptions{delay: -1}
	for _, opt := range opts {
		opt(&o)
	}
	n := wire.Nack{DelayMillis: -1, Reason: []byte(o.reason), Metadata: o.metadata}
	switch {
	case len(o.metadata) > core.MaxMetadata:
		return core.Errorf(core.CodeTooLarge, "metadata has %d bytes; at most %d are allowed", len(o.metadata), core.MaxMetadata)
	case o.hasDelay && (o.delay < 0 || o.delay > core.MaxNackDelay):
		return core.Errorf(core.CodeBadArgument, "delay %s is not in 0 … %s", o.delay, core.MaxNackDelay)
	case o.hasDelay:
		n.DelayMillis = o.delay.Milliseconds()
	}
	return d.giveUp(wire.TypeNack, n)
}

// Reject ends the message at once, whatever attempts are left: it becomes a dead letter, or is dropped or blocked as
// the group says. Errors as of Ack.
func (d *Delivery) Reject(reason string) error {
	return d.giveUp(wire.TypeReject, wire.Nack{DelayMillis: -1, Reason: []byte(reason)})
}

// Release undoes a delivery that the application has not worked on: the message is ready again at once, and the attempt
// does not count. An at-most-once group does not deliver it again. If the connection is lost, the client tries for 6
// seconds, and the time of the last call, so that another host may take over; OnRefused is not called. Errors as of
// Ack.
func (d *Delivery) Release() error {
	if err := d.settle(); err != nil {
		return err
	}
	if !d.slab.stream.out.giveBack(d.handle, d.Receipt.Seq, uint16(d.Attempt)) {
		return d.elsewhere(settlement{verb: wire.TypeReturn})
	}
	return nil
}

func (d *Delivery) giveUp(t wire.FrameType, n wire.Nack) error {
	if err := d.settle(); err != nil {
		return err
	}
	n.Handle, n.Seq, n.Attempt = d.handle, d.Receipt.Seq, uint16(d.Attempt)
	if !d.slab.stream.out.frame(t, n.Append) {
		return d.elsewhere(settlement{verb: t, delay: time.Duration(n.DelayMillis) * time.Millisecond, reason: string(n.Reason), metadata: string(n.Metadata)})
	}
	return nil
}

// Extend moves the end of the lock to this long from now, at most 12 h. Errors as of Ack; also ErrBadArgument for a
// longer time.
func (d *Delivery) Extend(by time.Duration) error {
	if by < 0 || by > core.MaxLockTimeout {
		return core.Errorf(core.CodeBadArgument, "lock of %s is not in 0 … %s", by, core.MaxLockTimeout)
	}
	if d.settled.Load() {
		return errSettled(d)
	}
	d.extending(by)
	e := wire.Extend{Handle: d.handle, Seq: d.Receipt.Seq, Attempt: uint16(d.Attempt), Millis: by.Milliseconds()}
	if !d.slab.stream.out.frame(wire.TypeExtend, e.Append) {
		return d.elsewhere(settlement{verb: wire.TypeExtend, delay: by})
	}
	return nil
}

// elsewhere has a settlement sent by another way than the stream, which has ended.
func (d *Delivery) elsewhere(x settlement) error {
	con := d.slab.stream.con
	if con.inbox.once() {
		if x.verb == wire.TypeAck {
			return nil // it was done before it was delivered
		}
		return core.Errorf(core.CodeStale, "the group delivers at most once; there is nothing to give back or to extend")
	}
	x.extent = d.slab.stream.extent(d.handle)
	if x.extent == nil || x.extent.token == "" || con.ctx.Err() != nil {
		return core.Errorf(core.CodeStale, "the connection of the delivery was lost; the message comes again")
	}
	x.run = wire.SeqRun{Base: d.Receipt.Seq, Count: 1, Attempt: uint16(d.Attempt)}
	x.asked = con.now()
	x.until, _ = d.lockEnds()
	con.settler.add(x)
	return nil
}

func (d *Delivery) settle() error {
	if d.settled.Swap(true) {
		return errSettled(d)
	}
	return nil
}

func errSettled(d *Delivery) error {
	return core.Errorf(core.CodeStale, "delivery of %s was settled before", d.Receipt)
}
