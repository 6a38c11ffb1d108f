package client

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// Publisher publishes to one queue. Safe for concurrent use.
//
// It sends messages in batches: while one batch is being written, new messages form the next one; it adds no delay. A
// message is sent again until it is durable on all replicas or its timeout is over. A message that was sent again
// because an answer was lost may be stored twice, under the same id.
type Publisher struct {
	queue string
	pub   *publish.Publisher
}

// Publisher connects to the input hosts of a queue. It fails at once if the queue does not exist or does not accept
// messages, and within about 3 s if it is a CP queue and no majority of the metadata answers. Otherwise it retries
// until ctx ends; if ctx has no deadline, until the client's timeout.
func (c *Client) Publisher(ctx context.Context, queue string, opts ...PublisherOption) (*Publisher, error) {
	if _, err := core.ParseAnyQueuePath(queue); err != nil {
		return nil, err
	}
	var o publisherOptions
	for _, opt := range opts {
		opt(&o)
	}
	var asked atomic.Bool // whether a server has said where the input hosts are, or why not
	pub := publish.New(publish.Config{
		Queue: queue, Client: c.opts.name, Timeout: o.timeout, MaxRecords: o.messages, MaxBytes: o.bytes, Log: c.opts.log,
		Route: func(ctx context.Context) ([]publish.Host, error) {
			res, err := read(ctx, c, c.msgs.PublishRoute, &pb.PublishRouteRequest{Queue: queue})
			asked.Store(core.CodeOf(err) != core.CodeDeadline)
			if err != nil {
				return nil, err
			}
			hosts := make([]publish.Host, len(res.Hosts))
			for i, h := range res.Hosts {
				hosts[i] = publish.Host{ID: core.HostID(h.Id), Address: h.Address}
			}
			return hosts, nil
		},
		Dial: func(ctx context.Context, h publish.Host) (*ws.Mux, error) {
			return c.links.get(ctx, h.Address, "/v1/publish")
		},
	})
	if err := c.start(func() { pub.Run(c.ctx) }); err != nil {
		return nil, err
	}
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	if err := pub.Connect(ctx); err != nil {
		pub.Close(ctx)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && !asked.Load() {
			err = core.Errorf(core.CodeUnavailable, "server %s did not answer where %s is published to; see whether it hangs, or name another: %w", c.frontends.current(), queue, err)
		}
		return nil, err
	}
	return &Publisher{queue: queue, pub: pub}, nil
}

// Publish waits until m is durable on all replicas. If ctx has already ended, m is not sent, and the error is
// ErrUnavailable (it wraps the cause of ctx). If ctx ends later the error is ErrUnknownOutcome, unless m was certainly
// not sent. After any error but ErrUnknownOutcome, m is not stored.
func (p *Publisher) Publish(ctx context.Context, m Message) (Receipt, error) {
	var r wire.Record
	if err := m.record(&r); err != nil {
		return Receipt{}, err
	}
	var timeout time.Duration
	if end, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(end), 1)
	}
	w := make(waiting, 1)
	if err := p.pub.Append(ctx, &r, timeout, w); err != nil {
		return Receipt{}, err
	}
	select {
	case out := <-w:
		return out.receipt, out.err
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // the publisher is about to say more than the context can
		late := time.NewTimer(250 * time.Millisecond)
		defer late.Stop()
		select {
		case out := <-w:
			return out.receipt, out.err
		case <-late.C:
		}
	}
	return Receipt{}, core.Errorf(core.CodeUnknown, "stopped waiting for the publish to %s: %w", p.queue, context.Cause(ctx))
}

type published struct {
	receipt Receipt
	err     error
}

// waiting is where Publish waits for the outcome.
type waiting chan published

func (w waiting) Settled(id core.MessageID, at core.Receipt, err error) {
	w <- published{Receipt{ID: id, Receipt: at}, err}
}

// callback is a caller's function as a publish.Done.
type callback func(Receipt, error)

func (f callback) Settled(id core.MessageID, at core.Receipt, err error) {
	f(Receipt{ID: id, Receipt: at}, err)
}

// PublishAsync accepts m and returns; done (may be nil) is called once with the outcome. While the publisher is full
// (see MaxInFlight) it waits, until ctx ends. m.Body is copied before it returns. An error means that m was not
// accepted and done is not called.
//
// Calls of done come one after another from one goroutine. done must not wait for this publisher. With an error the
// receipt of done holds the id only.
func (p *Publisher) PublishAsync(ctx context.Context, m Message, done func(Receipt, error)) error {
	var r wire.Record
	if err := m.record(&r); err != nil {
		return err
	}
	if done == nil {
		return p.pub.Append(ctx, &r, 0, nil)
	}
	return p.pub.Append(ctx, &r, 0, callback(done))
}

// Flush waits until every message accepted before it has its outcome and done has returned for it. If ctx ends first
// the error is ErrUnknownOutcome.
func (p *Publisher) Flush(ctx context.Context) error { return p.pub.Flush(ctx) }

// Close flushes and releases the publisher. Messages that have no outcome when ctx ends fail: with ErrUnknownOutcome if
// they may have been sent, otherwise with ErrUnavailable.
func (p *Publisher) Close(ctx context.Context) error { return p.pub.Close(ctx) }
