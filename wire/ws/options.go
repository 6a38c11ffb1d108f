package ws

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/columbamq/columba/wire"
)

// Options of a connection. Zero fields take the defaults of DefaultOptions.
type Options struct {
	// ReadLimit is the largest message taken, bytes. A peer coalesces frames up to MaxMessage, so it should not be below
	// that.
	ReadLimit int64
	SendBytes int // bound of what waits to be sent; Send blocks (until its context ends) above it
	// ControlBytes is the room for control frames beside SendBytes. A peer that leaves more of them unread loses the
	// connection.
	ControlBytes int
	// Together (may be nil) bounds what waits to be sent on all connections that have the same one: Full minds it.
	Together Bound
	// Drained (may be nil) is called after Full answered true, once half of the room is free again. It is called on the
	// writer goroutine and must not block.
	Drained func()
	// Admission decides whether Upgrade takes the connection, and counts its streams; nil: without limits. Dial ignores
	// it.
	Admission *Admission
	// Header goes with the handshake of Dial; nil: nothing beside what the protocol wants. Upgrade ignores it.
	Header http.Header
	// NetDial replaces the TCP dialer: in-process links dial an in-memory listener.
	NetDial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Bound divides a number of bytes among connections. It is safe for concurrent use. Its methods are called under the
// mutex of a connection, and must not wait.
type Bound interface {
	// Count notes that a connection has queued so many bytes, after so many before.
	Count(before, now int)
	// Room is how many bytes more a connection may queue that has so many; above 0 when it has none.
	Room(queued int) int
}

// DefaultOptions takes the largest frame there is and lets 8 MiB wait, and 8 MiB of control frames.
func DefaultOptions() Options {
	return Options{ReadLimit: wire.MaxRecord + 1<<20, SendBytes: 8 << 20, ControlBytes: 8 << 20}
}

func (o Options) withDefaults() Options {
	d := DefaultOptions()
	if o.ReadLimit <= 0 {
		o.ReadLimit = d.ReadLimit
	}
	if o.SendBytes <= 0 {
		o.SendBytes = d.SendBytes
	}
	if o.ControlBytes <= 0 {
		o.ControlBytes = d.ControlBytes
	}
	return o
}

// MaxMessage bounds the coalescing of frames into one message, bytes; one larger frame travels alone.
const MaxMessage = 1 << 20

const (
	writeTimeout     = 10 * time.Second // for one message
	pingEvery        = 10 * time.Second
	readTimeout      = 25 * time.Second // without any sign of life from the peer; peers of earlier versions ping every 15 s
	closeTimeout     = time.Second      // for what is queued and for the peer's answer
	handshakeTimeout = 10 * time.Second
)

// LateAfter is for how long a peer that is well and connected is silent at most: it pings more often.
const LateAfter = 20 * time.Second

// Buffers of the library. Reads beyond the small one go straight to ours. A client masks what it sends, through the
// write buffer, in fragments of its size.
const (
	readBufferSize   = 4 << 10
	clientBufferSize = 256 << 10
)
