// Package ws owns the websocket connections of the data plane and hides the library behind them.
package ws

import (
	"context"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/columbamq/columba/core"
)

// Conn is one websocket. One goroutine of its own writes and one reads; all methods are safe for concurrent use.
// Frames given to Send while a write is under way leave together in one message (≤ 1 MiB).
//
// A Conn writes and reads while Run runs; frames may be queued before. The owner of a Conn calls Run, or Close or
// Abort.
//
//	made ──Run──▶ running ──Close, handler failed──▶ closing ──peer's answer, 1 s──▶ ended
//	  └──Close, Abort──────────┴──Abort, error, peer closed, ctx cancelled───────────▶┘
type Conn struct {
	ws      *websocket.Conn
	socket  *socket // of a server; nil: the library writes messages, and masks them
	options Options
	wake    chan struct{} // buffered: there is something for the writer
	done    chan struct{} // closed once ended
	in      receiver
	lived   lifeSign
	place   *place // nil: nobody counts it

	mu struct {
		sync.Mutex
		queue   sendQueue
		counted int  // bytes of the queue, as Together knows them
		full    bool // Full said so; Drained is owed
		running bool
		closing *websocket.CloseError // the close message to send, once the queue is empty
		pong    *string               // the answer owed to the peer's latest ping
		ping    bool                  // somebody asks for a sign of life
		asked   time.Time             // when that was, last
		cause   error                 // of the end; errClosed when it was a clean one
		unread  error                 // the peer leaves too many control frames unread; Post has closed the socket
		ended   error                 // what callers are told from now on
	}
}

// Handler takes the messages of a connection, one after another, on its reader goroutine. It must not keep msg after
// it returns unless it calls msg.Retain.
type Handler func(msg *Message) error

func newConn(c *websocket.Conn, o Options) *Conn {
	conn := &Conn{ws: c, options: o, wake: make(chan struct{}, 1), done: make(chan struct{})}
	conn.lived.began = time.Now()
	conn.in.limit, conn.in.ended = int(o.ReadLimit), conn.done
	c.SetReadLimit(o.ReadLimit)
	c.SetPingHandler(func(data string) error {
		conn.mu.Lock()
		conn.mu.pong = &data
		conn.mu.Unlock()
		conn.wakeWriter()
		return conn.lived.note(c)
	})
	c.SetPongHandler(func(string) error { return conn.lived.note(c) })
	return conn
}

// Run reads until the connection ends, the handler fails or ctx is cancelled, and joins both goroutines.
// nil after a clean close by either side; the handler's error as it is, after up to a second for what is queued (an
// Error frame, say). Anything else has a code: CodeBadFrame for what is not a binary websocket message, CodeTooLarge
// beyond the read limit, CodeUnavailable for a lost, silent or cancelled connection, CodeThrottled for a flood of
// frames, or a message that came too slowly or found no room. The handler runs on the caller's goroutine.
func (c *Conn) Run(ctx context.Context, h Handler) error {
	c.mu.Lock()
	twice, cause := c.mu.running, c.mu.cause
	c.mu.running = true
	c.mu.Unlock()
	if twice {
		return core.Errorf(core.CodeInternal, "connection to %s is run already", c.RemoteAddr())
	}
	if cause != nil {
		return unlessClean(cause)
	}

	defer c.end(errPanic) // otherwise it has ended before

	var writer sync.WaitGroup
	writer.Go(c.write)
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cancelled)
		c.cancelled(context.Cause(ctx))
	})
	refused := c.read(h)
	if refused != nil {
		c.refuse(refused)
	}
	writer.Wait()
	if !stop() {
		<-cancelled
	}
	if refused != nil {
		return refused
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return unlessClean(c.mu.cause)
}

// Close sends a close message, waits for what is queued for up to a second, and ends the connection. It fails when
// something queued was not sent, as nothing is before Run. A handler that calls it waits the whole second: it should
// return an error instead.
func (c *Conn) Close() error {
	running, ended := c.beginClose(websocket.CloseNormalClosure, "")
	switch {
	case ended:
		return nil
	case running:
		c.awaitEnd()
	default:
		c.sendClose(websocket.CloseNormalClosure)
	}
	c.mu.Lock()
	unsent := c.mu.queue.bytes
	c.mu.Unlock()
	c.end(errClosed)
	if unsent > 0 {
		return core.Errorf(core.CodeUnavailable, "connection to %s closed before all that was queued could be sent", c.RemoteAddr())
	}
	return nil
}

// Abort ends the connection at once.
func (c *Conn) Abort(cause error) {
	if cause == nil {
		cause = core.Errorf(core.CodeUnavailable, "connection aborted")
	}
	c.end(cause)
}

// RemoteAddr is the peer's address, for logs.
func (c *Conn) RemoteAddr() string { return c.ws.RemoteAddr().String() }
