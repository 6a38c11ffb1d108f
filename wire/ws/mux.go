package ws

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// StreamHandler takes the frames of one stream of a Mux. Both methods are called on the connection's reader goroutine
// and must not block; HandleFrame keeps f.Body past its return only under m.Retain.
type StreamHandler interface {
	HandleFrame(f wire.Frame, m *Message)
	// Closed is called once, last, when the connection has ended. Not after Forget.
	Closed(err error)
}

// Mux shares one connection between many streams. A Drain on stream 0 goes to all of them. Safe for concurrent use.
type Mux struct {
	Conn   *Conn
	accept func(f wire.Frame, m *Message) StreamHandler
	mu     struct {
		sync.Mutex
		streams map[uint32]StreamHandler
		next    uint32
		ended   error
	}
}

// NewMux wraps a connection. accept is asked about the first frame of a stream this side does not know: it answers the
// handler (which then gets that frame too), or nil to ignore the frame. It calls Admit, last, for each handler that it
// answers. nil accept: ignore all of them (they belong to streams just forgotten).
func NewMux(c *Conn, accept func(f wire.Frame, m *Message) StreamHandler) *Mux {
	m := &Mux{Conn: c, accept: accept}
	m.mu.streams = make(map[uint32]StreamHandler)
	return m
}

// Open registers h under a stream number of its own. On a connection that has ended it fails, and Closed is not called.
func (m *Mux) Open(h StreamHandler) (uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.ended != nil {
		return 0, m.mu.ended
	}
	for {
		m.mu.next++
		if _, taken := m.mu.streams[m.mu.next]; !taken && m.mu.next != 0 {
			break
		}
	}
	m.mu.streams[m.mu.next] = h
	return m.mu.next, nil
}

// Forget drops a stream; later frames on it are ignored (or offered to accept).
func (m *Mux) Forget(stream uint32) {
	m.mu.Lock()
	_, known := m.mu.streams[stream]
	delete(m.mu.streams, stream)
	m.mu.Unlock()
	if p := m.Conn.place; known && p != nil {
		p.close()
	}
}

// Admit counts a stream that the peer opens, until it is forgotten or the connection ends. CodeThrottled: there are too
// many.
func (m *Mux) Admit() error {
	if m.Conn.place == nil {
		return nil
	}
	return m.Conn.place.open()
}

// Begin runs f, which opens a stream, beside the connection's reader: a bounded number at once on the host, the
// connections in turn. f is dropped when the connection ends first. CodeThrottled: too many of this connection wait;
// CodeDraining: the host is stopping. Only for connections with an Admission.
func (m *Mux) Begin(f func(ctx context.Context)) error { return m.Conn.place.do(f) }

// Ended is why no stream can be opened any more; nil while it runs.
func (m *Mux) Ended() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.ended
}

// Streams is how many are registered.
func (m *Mux) Streams() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.mu.streams)
}

// Run reads until the connection ends and then closes every stream.
func (m *Mux) Run(ctx context.Context) error {
	err := m.Conn.Run(ctx, m.message)
	ended := core.Errorf(core.CodeUnavailable, "connection to %s ended", m.Conn.RemoteAddr())
	if err != nil {
		ended = core.Errorf(core.CodeUnavailable, "connection to %s ended: %w", m.Conn.RemoteAddr(), err)
	}
	m.mu.Lock()
	m.mu.ended = ended
	streams := m.mu.streams
	m.mu.streams = nil
	m.mu.Unlock()
	for _, h := range streams {
		h.Closed(ended)
	}
	return err
}

func (m *Mux) message(msg *Message) error {
	rest := msg.Bytes
	for len(rest) > 0 {
		f, r, err := wire.NextFrame(rest)
		if err != nil {
			return err
		}
		rest = r
		if f.Stream == 0 && f.Type == wire.TypeDrain {
			for _, h := range m.handlers() {
				h.HandleFrame(f, msg)
			}
			continue
		}
		if h := m.handler(f, msg); h != nil {
			h.HandleFrame(f, msg)
		}
	}
	return nil
}

func (m *Mux) handlers() []StreamHandler {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.mu.streams))
}

func (m *Mux) handler(f wire.Frame, msg *Message) StreamHandler {
	m.mu.Lock()
	h := m.mu.streams[f.Stream]
	m.mu.Unlock()
	if h != nil || m.accept == nil {
		return h
	}
	if h = m.accept(f, msg); h != nil {
		m.mu.Lock()
		m.mu.streams[f.Stream] = h
		m.mu.Unlock()
	}
	return h
}
