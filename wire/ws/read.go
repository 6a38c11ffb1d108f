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

// lifeSign remembers when the peer was heard, and moves the read deadline on, at most once a second. It belongs to the reader goroutine,
// but for heard.
type lifeSign struct {
	began time.Time
	heard atomic.Int64 // nanoseconds after began
	at    time.Time    // the deadline was moved
	late  bool         // the peer was not heard for LateAfter, at some time
}

func (l *lifeSign) note(c *websocket.Conn) error {
	now := time.Now()
	at := now.Sub(l.began)
	l.late = l.late || at-time.Duration(l.heard.Swap(int64(at))) > LateAfter
	if now.Sub(l.at) < time.Second {
		return nil
	}
	l.at = now
	return c.SetReadDeadline(now.Add(readTimeout))
}

// stop leaves the read deadline as it is from now on.
func (l *lifeSign) stop() { l.at = time.Now().Add(24 * time.Hour) }

// Silent is for how long nothing was heard from the peer.
func (c *Conn) Silent() time.Duration {
	return max(0, time.Since(c.lived.began)-time.Duration(c.lived.heard.Load()))
}

// Late reports whether nothing was read from the peer for LateAfter at some time, since one of the two stood still or the network kept what was sent. A message
// that is handled after that may have been sent long ago. Only the Handler may call it.
func (c *Conn) Late() bool { return c.lived.late }

// aliveReader notes a sign of life with every piece of a message.
type aliveReader struct {
	io.Reader
	c *Conn
}

func (r *aliveReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
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
			c.end(c.readError(err))
			return nil
		}
		kind, r, err := c.ws.NextReader()
		if err != nil {
			c.end(c.readError(err))
			return nil
		}
		if kind != websocket.BinaryMessage {
			return core.Errorf(core.CodeBadFrame, "%s sent a text message; frames travel in binary ones", c.RemoteAddr())
		}
		alive.Reader = r
		m, err := c.in.receive(alive)
		if err != nil {
			c.end(c.readError(err))
			return nil
		}
		err = h(m)
		m.Release()
		if err != nil {
			return err
		}
	}
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
