package client

import (
	"context"
	"iter"
	"time"

	"github.com/columbamq/columba/core"
)

// Consumer receives the messages of one group of a queue from all output hosts that serve it. Lost connections are made
// again without the caller noticing; what they had delivered comes again. Safe for concurrent use.
type Consumer struct{}

// Consumer connects to the output hosts of a group. It fails at once if queue or group is not there, else it tries until ctx
// ends.
func (c *Client) Consumer(ctx context.Context, queue, group string, opts ...ConsumerOption) (*Consumer, error) {
	panic("unwritten")
}

// Deliveries yields messages until ctx ends, the consumer is closed (both without an error) or it fails for good. Every
// delivery has to be settled: Ack, Nack or Reject; else it comes again after the group's lock timeout. Several goroutines may
// range at once; each message goes to one of them.
func (c *Consumer) Deliveries(ctx context.Context) iter.Seq2[*Delivery, error] { panic("unwritten") }

// LockTimeout is the group's, as the host told it.
func (c *Consumer) LockTimeout() time.Duration { panic("unwritten") }

// Flush waits until every settlement made before it has been sent.
func (c *Consumer) Flush(ctx context.Context) error { panic("unwritten") }

// Close stops receiving, sends the settlements made so far and gives back what was never yielded, without counting an
// attempt. Deliveries not settled by then come again after the lock timeout.
func (c *Consumer) Close(ctx context.Context) error { panic("unwritten") }

// Delivery is one delivery of one message. It stays valid for as long as it is kept. Safe for concurrent use; only the
// first of Ack, Nack and Reject counts.
type Delivery struct {
	Body     []byte
	ID       MessageID
	Attempt  int // from 1
	Enqueued time.Time
	Receipt  core.Receipt
	Token    string // with the option WithTokens only
}

// Key is the message's, "" if it has none.
func (d *Delivery) Key() string { panic("unwritten") }

// Headers decodes the message's headers into a new map; nil if there are none.
func (d *Delivery) Headers() map[string]string { panic("unwritten") }

// Metadata is what an earlier Nack left with the message.
func (d *Delivery) Metadata() []byte { panic("unwritten") }

// TraceParent is the producer's trace context.
func (d *Delivery) TraceParent() string { panic("unwritten") }

// Ack says that the message is done. It is sent in the background (see Flush, OnRefused); ErrStale: the delivery was settled
// before or its connection was lost, and the message comes again.
func (d *Delivery) Ack() error { panic("unwritten") }

// Nack gives the message back: it is delivered again by the group's backoff or as After says. Errors as of Ack.
func (d *Delivery) Nack(opts ...NackOption) error { panic("unwritten") }

// Reject sends the message to the dead letter queue at once. Errors as of Ack.
func (d *Delivery) Reject(reason string) error { panic("unwritten") }

// Extend keeps the message locked for this long from now. Errors as of Ack.
func (d *Delivery) Extend(by time.Duration) error { panic("unwritten") }

// Refusal is a settlement that a host refused.
type Refusal struct {
	Receipt core.Receipt
	Attempt int
	Err     error
}
