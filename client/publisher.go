package client

import (
	"context"
)

// Publisher publishes to one queue. Safe for concurrent use.
//
// What gathers while a write is under way travels together; there is no linger. A message is tried until it is
// durable on all replicas or its time is up. A message that was sent again because an answer was lost may be stored
// twice, under the same id.
type Publisher struct{}

// Publisher connects to the input hosts of a queue. It fails at once if the queue is not there or does not take messages,
// else it tries until ctx ends.
func (c *Client) Publisher(ctx context.Context, queue string, opts ...PublisherOption) (*Publisher, error) {
	panic("unwritten")
}

// Publish waits until m is durable on all replicas. If ctx ends first the error is ErrUnknownOutcome, unless
// m was certainly not sent.
func (p *Publisher) Publish(ctx context.Context, m Message) (Receipt, error) { panic("unwritten") }

// PublishAsync takes m and returns; done (may be nil) is called once with the outcome. While the publisher is full it
// waits, until ctx ends. m.Body is copied before it returns. An error means that m was not taken and done is not called.
//
// Calls of done come one after another from one goroutine. It must not wait for this publisher.
func (p *Publisher) PublishAsync(ctx context.Context, m Message, done func(Receipt, error)) error {
	panic("unwritten")
}

// Flush waits until every message taken before it has its outcome and done has returned for it.
func (p *Publisher) Flush(ctx context.Context) error { panic("unwritten") }

// Close flushes and releases the publisher. What is still under way when ctx ends fails.
func (p *Publisher) Close(ctx context.Context) error { panic("unwritten") }
