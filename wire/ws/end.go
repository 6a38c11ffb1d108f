package ws

import (
	"errors"
	"time"

	"github.com/gorilla/websocket"

	"github.com/columbamq/columba/core"
)

// errClosed is the cause of a clean end.
var errClosed = errors.New("closed")

// errPanic is the cause when the handler panicked, which the HTTP server recovers from.
var errPanic = core.Errorf(core.CodeInternal, "the handler of the connection panicked")

func unlessClean(cause error) error {
	if errors.Is(cause, errClosed) {
		return nil
	}
	return cause
}

// end makes the first cause the connection's, closes the socket, and gives back whatever waited to be sent.
func (c *Conn) end(cause error) {
	if c.decide(cause) {
		c.teardown()
	}
}

// decide makes cause the connection's unless it has one. The caller that gets true calls teardown.
func (c *Conn) decide(cause error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.cause != nil {
		return false
	}
	if c.mu.unread != nil { // what the socket says now only follows from it
		cause = c.mu.unread
	}
	c.mu.cause = cause
	c.mu.ended = core.Errorf(core.CodeUnavailable, "connection to %s has ended: %w", c.RemoteAddr(), cause)
	return true
}

func (c *Conn) teardown() {
	c.mu.Lock()
	ended := c.mu.ended
	segments, waiting := c.mu.queue.segments, c.mu.queue.waiting
	c.mu.queue.segments, c.mu.queue.waiting = nil, nil
	c.mu.queue.dropTail()
	c.countLocked()
	c.mu.Unlock()

	if c.place != nil {
		c.place.leave()
	}
	close(c.done)
	c.wakeWriter()
	c.ws.Close() // its error says nothing more
	for i := range segments {
		segments[i].free()
	}
	for _, p := range waiting {
		p.done <- ended
	}
}

// beginClose refuses new frames, and has the writer send a close message after those queued. It reports whether Run
// runs, and whether the connection has ended before.
func (c *Conn) beginClose(code int, text string) (running, ended bool) {
	c.mu.Lock()
	running, ended = c.mu.running, c.mu.ended != nil
	if c.mu.closing == nil {
		c.mu.closing = &websocket.CloseError{Code: code, Text: text}
	}
	waiting := c.mu.queue.waiting
	c.mu.queue.waiting = nil
	refusal := c.refusalLocked()
	c.mu.Unlock()
	for _, p := range waiting {
		p.done <- refusal
	}
	c.wakeWriter()
	return running, ended
}

// awaitEnd waits for the end, up to a second.
func (c *Conn) awaitEnd() {
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
	}
}

// refuse closes the connection because of what the peer sent: what is queued goes out first, then the reason.
func (c *Conn) refuse(why error) {
	code := websocket.ClosePolicyViolation
	switch core.CodeOf(why) {
	case core.CodeBadFrame, core.CodeBadRecord, core.CodeVersion:
		code = websocket.CloseProtocolError
	case core.CodeTooLarge:
		code = websocket.CloseMessageTooBig
	case core.CodeUnavailable, core.CodeDraining:
		code = websocket.CloseGoingAway
	}
	c.beginClose(code, string(core.CodeOf(why)))
	c.discard()
	c.end(why)
}

// cancelled tells the peer, if that is possible at once, and ends the connection. The cause comes first: the peer's
// answer must not make it a clean close.
func (c *Conn) cancelled(cause error) {
	if c.decide(core.Errorf(core.CodeUnavailable, "connection to %s was cancelled: %w", c.RemoteAddr(), cause)) {
		c.sendClose(websocket.CloseGoingAway)
		c.teardown()
	}
}

// sendClose sends a close message past the queue, unless that takes long; best effort.
func (c *Conn) sendClose(code int) {
	const patience = 100 * time.Millisecond
	c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(patience))
}
