package client

import (
	"context"
	"time"
)

// Handler does one task. nil acks the message; Retry and Reject choose what becomes of it; any other error, and a
// panic, is a nack with its text and the group's backoff. Its context ends when the message's lock is lost or Work's grace is over.
type Handler func(ctx context.Context, d *Delivery) error

// Work consumes a group with h until ctx ends or the group is gone. It keeps messages locked while their handlers run. When
// ctx ends it takes no more, waits for the handlers that run (see Grace), gives back the rest and returns nil.
func (c *Client) Work(ctx context.Context, queue, group string, h Handler, opts ...WorkOption) error {
	panic("unwritten")
}

// Retry makes a handler's message come again after the given time.
func Retry(after time.Duration) error { panic("unwritten") }

// Reject makes a handler's message a dead letter at once.
func Reject(reason string) error { panic("unwritten") }
