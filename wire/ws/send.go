package ws

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
)

// Send queues whole frames. The conn copies b before it returns. It blocks while more than SendBytes wait.
// CodeUnavailable: b was not queued, because the connection has ended or is closing, or ctx ended first.
func (c *Conn) Send(ctx context.Context, b []byte) error {
	return c.enqueue(ctx, b, nil, nil)
}

// SendOwned queues header and body without copying them; release (may be nil) is called once when they are written or
// the connection has ended – or, when it fails, before it returns. header holds the frame header (small, copied), body
// the bulk bytes. release may run on another goroutine, and must not block.
func (c *Conn) SendOwned(ctx context.Context, header, body []byte, release func()) error {
	err := c.enqueue(ctx, header, body, release)
	if err != nil && release != nil {
		release()
	}
	return err
}

// PushOwned is SendOwned that neither waits nor minds the bound: the caller bounds what it has queued.
func (c *Conn) PushOwned(header, body []byte, release func()) error {
	c.mu.Lock()
	err := c.refusalLocked()
	if err == nil {
		c.mu.queue.push(header, body, release)
		c.countLocked()
	}
	c.mu.Unlock()
	if err != nil {
		if release != nil {
			release()
		}
		return err
	}
	c.wakeWriter()
	return nil
}

// Full reports that SendBytes or more wait to be sent, or more than the part of the connection in Options.Together. A
// caller of PushOwned whose frames have no other bound checks Full before, and goes on when Options.Drained is called.
func (c *Conn) Full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := c.mu.queue.bytes >= c.boundLocked()
	c.mu.full = c.mu.full || full
	return full
}

// boundLocked is how many bytes may wait to be sent now.
func (c *Conn) boundLocked() int {
	if b := c.options.Together; b != nil {
		return min(c.options.SendBytes, c.mu.queue.bytes+b.Room(c.mu.queue.bytes))
	}
	return c.options.SendBytes
}

// countLocked tells Together how much waits to be sent. A connection that has ended counts nothing.
func (c *Conn) countLocked() {
	queued := c.mu.queue.bytes
	if c.mu.cause != nil {
		queued = 0
	}
	if b := c.options.Together; b != nil && queued != c.mu.counted {
		b.Count(c.mu.counted, queued)
		c.mu.counted = queued
	}
}

// Post queues a small control frame: an answer, a position, the end of a stream. It copies b and never waits. Control
// frames have ControlBytes of room beside the bulk, so a full queue does not drop them. A peer that leaves that much
// unread loses the connection. So a posted frame is either written, or its stream ends with the connection: callers
// have nothing to check or to repeat.
func (c *Conn) Post(b []byte) {
	c.mu.Lock()
	if c.refusalLocked() != nil {
		c.mu.Unlock()
		return
	}
	over := c.mu.queue.control+len(b) > c.options.ControlBytes
	if over {
		c.mu.unread = core.Errorf(core.CodeThrottled, "%s does not read: %d KiB of answers wait for it", c.RemoteAddr(), c.mu.queue.control>>10)
	} else {
		c.mu.queue.pushControl(b)
	}
	c.mu.Unlock()
	if over {
		c.ws.Close() // the reader notices and ends the connection: callers may hold locks that release functions take
	}
	c.wakeWriter()
}

// Ping asks the peer for a sign of life, which Silent tells of. It does not wait; other pings go out now and then by
// themselves. For a second no other goes out while one is not answered: its answer tells as much, and a peer that stood
// still must not find a flood of pings.
func (c *Conn) Ping() {
	c.mu.Lock()
	now := time.Now()
	asks := now.Sub(c.mu.asked) >= time.Second || c.lived.heardSince(c.mu.asked)
	if asks {
		c.mu.ping, c.mu.asked = true, now
	}
	c.mu.Unlock()
	if asks {
		c.wakeWriter()
	}
}

// enqueue fails without having called release.
func (c *Conn) enqueue(ctx context.Context, header, body []byte, release func()) error {
	c.mu.Lock()
	if err := c.refusalLocked(); err != nil {
		c.mu.Unlock()
		return err
	}
	if c.roomLocked() {
		c.mu.queue.push(header, body, release)
		c.countLocked()
		c.mu.Unlock()
		c.wakeWriter()
		return nil
	}
	p := &pending{header: header, body: body, release: release, done: make(chan error, 1)}
	c.mu.queue.waiting = append(c.mu.queue.waiting, p)
	c.mu.Unlock()

	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
	}
	c.mu.Lock()
	forgotten := c.mu.queue.forget(p)
	c.mu.Unlock()
	if !forgotten { // queued or refused in the same instant
		return <-p.done
	}
	return core.Errorf(core.CodeUnavailable, "%s takes too long to read what is queued for it: %w", c.RemoteAddr(), context.Cause(ctx))
}

// roomLocked: one frame may go over the bound, and nobody overtakes those who wait.
func (c *Conn) roomLocked() bool {
	return c.mu.queue.bytes < c.options.SendBytes && len(c.mu.queue.waiting) == 0
}

// refusalLocked is why nothing can be queued any more, nil if it can.
func (c *Conn) refusalLocked() error {
	switch {
	case c.mu.ended != nil:
		return c.mu.ended
	case c.mu.unread != nil:
		return core.Errorf(core.CodeUnavailable, "connection to %s is ending: %w", c.RemoteAddr(), c.mu.unread)
	case c.mu.closing != nil:
		return core.Errorf(core.CodeUnavailable, "connection to %s is closing", c.RemoteAddr())
	}
	return nil
}

func (c *Conn) wakeWriter() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
