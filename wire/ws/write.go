package ws

import (
	"errors"
	"runtime"
	"time"

	"github.com/gorilla/websocket"

	"github.com/columbamq/columba/core"
)

// write is the writer goroutine. Frames that gather while a message is being written, or until this goroutine is
// scheduled, go into the next one; no timer delays anything.
func (c *Conn) write() {
	ping := c.pingNowAndThen()
	defer ping.Stop()
	var segments []segment
	for {
		var pong *string
		var pinged, over bool
		var closing *websocket.CloseError
		segments, pong, pinged, closing, over = c.next(segments[:0])
		if over {
			return
		}
		err := c.writeNext(segments, pong, pinged, closing)
		c.written(segments)
		if err != nil {
			c.writeFailed(err)
			return
		}
		if len(segments) == 0 && closing != nil {
			return // the reader waits for the peer's answer
		}
		if len(segments) == 0 && pong == nil && !pinged {
			<-c.wake // the end wakes, too
			// The goroutine that woke this one often has more to send: an acknowledgement of one disk sync answers many
			// streams. On an idle machine this costs nothing.
			runtime.Gosched()
		}
	}
}

// pingNowAndThen has the writer ping while nothing else may go either way.
func (c *Conn) pingNowAndThen() *time.Timer {
	var timer *time.Timer
	ready := make(chan struct{})
	timer = time.AfterFunc(pingEvery, func() {
		<-ready
		select {
		case <-c.done:
		default:
			c.Ping()
			timer.Reset(pingEvery)
		}
	})
	close(ready)
	return timer
}

// next takes what is to be written; over: the connection has ended.
func (c *Conn) next(dst []segment) (_ []segment, pong *string, ping bool, closing *websocket.CloseError, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.cause != nil {
		return dst, nil, false, nil, true
	}
	pong, ping = c.mu.pong, c.mu.ping
	c.mu.pong, c.mu.ping = nil, false
	return c.mu.queue.take(dst), pong, ping, c.mu.closing, false
}

// writeNext writes a ping, a pong, and a message or – when nothing is queued any more – the close message.
func (c *Conn) writeNext(segments []segment, pong *string, ping bool, closing *websocket.CloseError) error {
	if ping {
		if err := c.control(websocket.PingMessage, nil); err != nil {
			return err
		}
	}
	if pong != nil {
		if err := c.control(websocket.PongMessage, []byte(*pong)); err != nil {
			return err
		}
	}
	if len(segments) > 0 {
		return c.writeMessage(segments)
	}
	if closing != nil {
		return c.control(websocket.CloseMessage, websocket.FormatCloseMessage(closing.Code, closing.Text))
	}
	return nil
}

func (c *Conn) writeMessage(segments []segment) error {
	until := time.Now().Add(writeTimeout)
	if c.socket != nil {
		return c.socket.writeMessage(segments, until)
	}
	if err := c.ws.SetWriteDeadline(until); err != nil {
		return err
	}
	if len(segments) == 1 {
		return c.ws.WriteMessage(websocket.BinaryMessage, segments[0].b)
	}
	w, err := c.ws.NextWriter(websocket.BinaryMessage)
	if err != nil {
		return err
	}
	for i := range segments {
		if _, err := w.Write(segments[i].b); err != nil {
			return err
		}
	}
	return w.Close()
}

func (c *Conn) control(kind int, data []byte) error {
	return c.ws.WriteControl(kind, data, time.Now().Add(writeTimeout))
}

// written frees segments, sent or not, and lets callers in that waited for room.
func (c *Conn) written(segments []segment) {
	cost, control := 0, 0
	for i := range segments {
		cost += segments[i].cost
		control += segments[i].control
		segments[i].free()
	}
	clear(segments)
	if cost == 0 {
		return
	}
	c.mu.Lock()
	admitted := c.mu.queue.settle(cost, control, c.options.SendBytes)
	c.countLocked()
	drained := c.mu.full && c.mu.queue.bytes <= c.boundLocked()/2
	c.mu.full = c.mu.full && !drained
	c.mu.Unlock()
	if drained && c.options.Drained != nil {
		c.options.Drained()
	}
	for _, p := range admitted {
		p.done <- nil
	}
}

// writeFailed ends the connection. When the close message has gone out, the reader is about to do so. When the peer has
// closed the socket, its last words may still wait to be read and tell why: the reader has a second to come across
// them.
func (c *Conn) writeFailed(err error) {
	if errors.Is(err, websocket.ErrCloseSent) {
		return
	}
	if !isTimeout(err) {
		c.awaitEnd()
	}
	c.end(core.Errorf(core.CodeUnavailable, "write to %s: %w", c.RemoteAddr(), err))
}
