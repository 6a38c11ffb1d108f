// Package ws owns the websocket connections of the data plane and hides the library behind them.
package ws

import (
	"context"
	"net"
	"net/http"
)

// Options of a connection. Zero fields take the defaults of DefaultOptions.
type Options struct {
	ReadLimit int64 // largest message taken, bytes
	SendBytes int   // bound of what waits to be sent; Send blocks (until its context ends) above it
	// NetDial replaces the TCP dialer: in-process links dial an in-memory listener.
	NetDial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Conn is one websocket. One goroutine of its own writes and one reads; all methods are safe for concurrent use.
// Frames given to Send while a write is under way leave together in one message (≤ 1 MiB).
type Conn struct{}

// Handler takes the messages of a connection, one after another, on its reader goroutine. It must not keep msg after
// it returns unless it calls msg.Retain.
type Handler func(msg *Message) error

// Message is a received websocket message in a pooled, reference-counted buffer.
type Message struct{ Bytes []byte }

// Retain keeps the buffer until the matching Release.
func (m *Message) Retain() { panic("unwritten") }

// Release gives one reference back.
func (m *Message) Release() { panic("unwritten") }

// Dial connects to ws://addr+path.
func Dial(ctx context.Context, addr, path string, o Options) (*Conn, error) { panic("unwritten") }

// Upgrade turns an HTTP request into a connection. On failure it has answered the request.
func Upgrade(w http.ResponseWriter, r *http.Request, o Options) (*Conn, error) { panic("unwritten") }

// Run reads until the connection ends, the handler fails or ctx is cancelled, and joins both goroutines.
// nil after a clean close by either side.
func (c *Conn) Run(ctx context.Context, h Handler) error { panic("unwritten") }

// Send queues whole frames. The conn copies b before it returns. It blocks while more than SendBytes wait.
func (c *Conn) Send(ctx context.Context, b []byte) error { panic("unwritten") }

// SendOwned queues header and body without copying them; release (may be nil) is called once when they are written or the
// connection has ended. header holds the frame header (small, copied), body the bulk bytes.
func (c *Conn) SendOwned(ctx context.Context, header, body []byte, release func()) error {
	panic("unwritten")
}

// TrySend is Send that never blocks: false when over the bound or closed.
func (c *Conn) TrySend(b []byte) bool { panic("unwritten") }

// Close sends a close message, waits for what is queued for up to a second, and ends the connection.
func (c *Conn) Close() error { panic("unwritten") }

// Abort ends the connection at once.
func (c *Conn) Abort(cause error) { panic("unwritten") }

// RemoteAddr is the peer's address, for logs.
func (c *Conn) RemoteAddr() string { panic("unwritten") }
