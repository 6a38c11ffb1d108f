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

// Write buffers are lent to a client's connection for the time of one message. Nothing is taken from serverBuffers.
var clientBuffers, serverBuffers sync.Pool

// Dial connects to ws://addr+path. ctx bounds the handshake only. CodeThrottled when the host takes no more connections
// from here, CodeUnavailable when nobody answers, or not with a websocket.
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

// Upgrade turns an HTTP request into a connection. On failure it has answered the request. Requests of web pages of
// another origin are refused, and with status 429 and CodeThrottled those that the Admission does not take.
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
		ReadBufferSize:   0,              // that of the HTTP server is reused
		WriteBufferPool:  &serverBuffers, // with a pool no connection has a buffer of its own; socket needs none
	}
	hijack := &hijacker{ResponseWriter: w}
	c, err := upgrader.Upgrade(hijack, r, nil)
	if err != nil {
		if held != nil {
			held.leave()
		}
		return nil, core.Errorf(core.CodeBadArgument, "upgrade %s from %s to a websocket: %w", r.URL.Path, r.RemoteAddr, err)
	}
	hijack.buffer.Reset(newFloodGuard(hijack.socket)) // the library reads through this buffer, which is empty
	conn := newConn(c, o.withDefaults())
	conn.socket = hijack.socket
	if held != nil {
		held.conn = conn
		conn.place, conn.in.place, conn.lived.limited = held, held, true
	}
	return conn, nil
}

// hijacker keeps the socket of a hijacked connection, and the buffer that it is read through.
type hijacker struct {
	http.ResponseWriter
	socket *socket
	buffer *bufio.Reader
}

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.socket, h.buffer = newSocket(conn), rw.Reader
	return h.socket, rw, nil
}
