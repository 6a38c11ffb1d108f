package ws

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/columbamq/columba/core"
)

// lifeSign remembers when the peer was heard, and moves the read deadline on, at most once a second unless bytes of a
// slow message gain more. It belongs to the reader goroutine, but for the atomic fields.
type lifeSign struct {
	began    time.Time
	heard    atomic.Int64  // nanoseconds after began
	at       time.Time     // the deadline was moved
	deadline time.Duration // it, after began
	late     bool          // the peer was not heard for LateAfter, at some time
	limited  bool          // messages must not come too slowly

	message  atomic.Int64 // nanoseconds after began, when the first bytes of the message that arrives came; 0: none arrives
	received atomic.Int64 // bytes of it
	cut      atomic.Bool  // it came too slowly for those that wait for its room
	earlier  bool         // the read deadline is that of the message
}

// A message may take so long: by itself, and while others wait for its room. Sums of a pause and the time at a rate in
// bytes per second.
const (
	calmPause, calmRate       = 10 * time.Second, 64 << 10
	pressedPause, pressedRate = time.Second, 1 << 20
)

var errSlow = core.Errorf(core.CodeThrottled, "a message came more slowly than %d KiB a second, or than %d KiB a second while others wait for its room; "+
	"send smaller messages, or over a faster network", calmRate>>10, pressedRate>>10)

func (l *lifeSign) note(c *websocket.Conn) error {
	now := time.Now()
	at := now.Sub(l.began)
	l.late = l.late || at-time.Duration(l.heard.Swap(int64(at))) > LateAfter
	return l.extend(c, now)
}

// extend moves the read deadline on.
func (l *lifeSign) extend(c *websocket.Conn, now time.Time) error {
	at := now.Sub(l.began)
	deadline, earlier := at+readTimeout, false
	if l.limited && l.message.Load() != 0 {
		last := l.until(calmPause, calmRate)
		deadline, earlier = min(deadline, last), last < deadline
	}
	gains := l.earlier && deadline-l.deadline >= time.Second // a fast piece is worth more than the time it took
	if now.Sub(l.at) < time.Second && !gains {
		return nil
	}
	l.at, l.deadline, l.earlier = now, deadline, earlier
	if err := c.SetReadDeadline(l.began.Add(deadline)); err != nil {
		return err
	}
	if l.cut.Load() { // its deadline may have come before this one
		return errSlow
	}
	return nil
}

// piece counts bytes of the message.
func (l *lifeSign) piece(n int) {
	if n > 0 && l.message.Load() == 0 {
		l.message.Store(max(1, int64(time.Since(l.began))))
	}
	l.received.Add(int64(n))
}

// arrived says that the message is complete.
func (l *lifeSign) arrived() {
	l.message.Store(0)
	l.received.Store(0)
	if l.earlier {
		l.at, l.earlier = time.Time{}, false
	}
}

// pause takes a wait for room off the time of the message.
func (l *lifeSign) pause(d time.Duration) { l.message.Add(int64(d)) }

// until is when the next bytes of the message have to be there, after began.
func (l *lifeSign) until(pause time.Duration, rate int64) time.Duration {
	return time.Duration(l.message.Load()) + pause + time.Duration(l.received.Load())*time.Second/time.Duration(rate)
}

// slow reports whether the message comes more slowly than it may while others wait. On any goroutine.
func (l *lifeSign) slow(now time.Time) bool {
	return l.message.Load() != 0 && now.Sub(l.began) > l.until(pressedPause, pressedRate)
}

func (l *lifeSign) heardSince(t time.Time) bool {
	return time.Duration(l.heard.Load()) >= t.Sub(l.began)
}

// stop leaves the read deadline as it is from now on.
func (l *lifeSign) stop() { l.at, l.earlier = time.Now().Add(24*time.Hour), false }

// Silent is for how long nothing was heard from the peer.
func (c *Conn) Silent() time.Duration {
	return max(0, time.Since(c.lived.began)-time.Duration(c.lived.heard.Load()))
}

// Late reports whether nothing was read from the peer for LateAfter at some time, since one of the two stood still or
// the network kept what was sent. A message that is handled after that may have been sent long ago. Only the Handler
// may call it.
func (c *Conn) Late() bool { return c.lived.late }

// aliveReader notes a sign of life with every piece of a message.
type aliveReader struct {
	io.Reader
	c *Conn
}

func (r *aliveReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.c.lived.piece(n)
	if noted := r.c.lived.note(r.c.ws); err == nil {
		err = noted
	}
	return n, err
}

// read hands messages to h until the connection has ended (nil: c knows why) or one is refused.
func (c *Conn) read(h Handler) (refused error) {
	alive := &aliveReader{c: c}
	for {
		if err := c.lived.note(c.ws); err != nil {
			c.unreadable(err)
			return nil
		}
		kind, r, err := c.ws.NextReader()
		if err != nil {
			c.unreadable(err)
			return nil
		}
		if kind != websocket.BinaryMessage {
			return core.Errorf(core.CodeBadFrame, "%s sent a text message; frames travel in binary ones", c.RemoteAddr())
		}
		alive.Reader = r
		m, err := c.in.receive(alive)
		if err != nil {
			c.unreadable(err)
			return nil
		}
		c.lived.arrived()
		err = h(m)
		m.Release()
		if err != nil {
			return err
		}
	}
}

// unreadable ends the connection after a failed read. A peer that was not patient or not fair is told so.
func (c *Conn) unreadable(err error) {
	if isTimeout(err) && (c.lived.cut.Load() || c.lived.earlier) {
		err = errSlow
	}
	if core.CodeOf(err) != core.CodeThrottled {
		c.end(c.readError(err))
		return
	}
	if c.place != nil && (errors.Is(err, errFlood) || errors.Is(err, errEmptyFragment)) {
		c.place.flooded()
	}
	if c.decide(core.Errorf(core.CodeThrottled, "connection to %s was ended: %w", c.RemoteAddr(), err)) {
		c.sendClose(websocket.ClosePolicyViolation)
		c.teardown()
	}
}

// cutShort has the reader goroutine end the connection, whose message comes too slowly.
func (c *Conn) cutShort() {
	c.lived.cut.Store(true)
	_ = c.ws.SetReadDeadline(time.Unix(1, 0))
}

// discard reads on, without a look at what comes, until the peer has answered the close message, for up to a second:
// closing a socket with unread bytes would destroy what the peer has not read yet.
func (c *Conn) discard() {
	c.lived.stop()
	if c.ws.SetReadDeadline(time.Now().Add(closeTimeout)) != nil {
		return
	}
	for {
		if _, _, err := c.ws.NextReader(); err != nil {
			return
		}
	}
}

// readError puts the library's errors into the catalogue; errClosed for a clean close.
func (c *Conn) readError(err error) error {
	var closed *websocket.CloseError
	if errors.As(err, &closed) {
		return c.closeError(closed)
	}
	if errors.Is(err, websocket.ErrReadLimit) {
		return core.Errorf(core.CodeTooLarge, "%s sent a message of more than %d bytes", c.RemoteAddr(), c.options.ReadLimit)
	}
	if isTimeout(err) {
		return core.Errorf(core.CodeUnavailable, "nothing was heard from %s for %s: %w", c.RemoteAddr(), readTimeout, err)
	}
	if strings.HasPrefix(err.Error(), "websocket: ") { // the library has no type for them
		return core.Errorf(core.CodeBadFrame, "%s does not speak the websocket protocol: %w", c.RemoteAddr(), err)
	}
	return core.Errorf(core.CodeUnavailable, "read from %s: %w", c.RemoteAddr(), err)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func (c *Conn) closeError(closed *websocket.CloseError) error {
	switch closed.Code {
	case websocket.CloseNormalClosure, websocket.CloseGoingAway, websocket.CloseNoStatusReceived:
		return errClosed
	case websocket.CloseProtocolError, websocket.CloseUnsupportedData:
		return core.Errorf(core.CodeBadFrame, "%s refused what was sent: %w", c.RemoteAddr(), closed)
	case websocket.CloseMessageTooBig:
		return core.Errorf(core.CodeTooLarge, "%s refused a message as too large: %w", c.RemoteAddr(), closed)
	}
	return core.Errorf(core.CodeUnavailable, "connection to %s was lost: %w", c.RemoteAddr(), closed)
}
