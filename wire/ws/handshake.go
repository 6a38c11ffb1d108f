package ws

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/gorilla/websocket"

	"github.com/columbamq/columba/core"
)

// Write buffers are lent to a connection for the time of one message. All in a pool have one size.
var clientBuffers, serverBuffers sync.Pool

// Dial connects to ws://addr+path. ctx bounds the handshake only. CodeThrottled when the host takes no more connections from here, CodeUnavailable
// when nobody answers, or not with a websocket.
func Dial(ctx context.Context, addr, path string, o Options) (*Conn, error) {
	o = o.withDefaults()
	dialer := websocket.Dialer{
		NetDialContext:   o.NetDial,
		HandshakeTimeout: handshakeTimeout,
		ReadBufferSize:   readBufferSize,
		WriteBufferSize:  clientBufferSize,
		WriteBufferPool:  &clientBuffers,
	}
	c, response, err := dialer.DialContext(ctx, "ws://"+addr+path, o.Header)
	if err != nil {
		if response != nil {
			text, _ := io.ReadAll(io.LimitReader(response.Body, 256)) // the library keeps the beginning only
			code := core.CodeUnavailable
			if response.StatusCode == http.StatusTooManyRequests {
				code = core.CodeThrottled
			}
			return nil, core.Errorf(code, "%s answered %s to a websocket on %s: %s", addr, response.Status, path, strings.TrimSpace(string(text)))
		}
		return nil, core.Errorf(core.CodeUnavailable, "connect to %s: %w", addr, err)
	}
	return newConn(c, o), nil
}

// Upgrade turns an HTTP request into a connection. On failure it has answered the request. Requests of web pages of another
// origin are refused, and with status 429 and CodeThrottled those that the Admission does not take.
func Upgrade(w http.ResponseWriter, r *http.Request, o Options) (*Conn, error) {
	var held *place
	if o.Admission != nil {
		var err error
		if held, err = o.Admission.connect(r.RemoteAddr); err != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusTooManyRequests)
			return nil, core.Errorf(core.CodeOf(err), "connection from %s: %w", r.RemoteAddr, err)
		}
	}
	upgrader := websocket.Upgrader{
		HandshakeTimeout: handshakeTimeout,
		ReadBufferSize:   0, // that of the HTTP server is reused
		WriteBufferSize:  serverBufferSize,
		WriteBufferPool:  &serverBuffers,
	}
	hijack := &hijacker{ResponseWriter: w}
	c, err := upgrader.Upgrade(hijack, r, nil)
	if err != nil {
		if held != nil {
			held.leave()
		}
		return nil, core.Errorf(core.CodeBadArgument, "upgrade %s from %s to a websocket: %w", r.URL.Path, r.RemoteAddr, err)
	}
	// The library reads through this buffer, which is empty. It gets the plain socket itself, which writes many buffers at once.
	hijack.buffer.Reset(newFloodGuard(c.NetConn()))
	conn := newConn(c, o.withDefaults())
	if held != nil {
		held.conn = conn
		conn.place, conn.in.place, conn.lived.limited = held, held, true
	}
	return conn, nil
}

// hijacker keeps the buffer that a hijacked connection is read through.
type hijacker struct {
	http.ResponseWriter
	buffer *bufio.Reader
}

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err == nil {
		h.buffer = rw.Reader
	}
	return conn, rw, err
}
