package ws

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/gorilla/websocket"

	"github.com/columbamq/columba/core"
)

// Write buffers are lent to a connection for the time of one message. All in a pool have one size.
var clientBuffers, serverBuffers sync.Pool

// Dial connects to ws://addr+path. ctx bounds the handshake only. CodeUnavailable when nobody answers, or not with a websocket.
func Dial(ctx context.Context, addr, path string, o Options) (*Conn, error) {
	o = o.withDefaults()
	dialer := websocket.Dialer{
		NetDialContext:   o.NetDial,
		HandshakeTimeout: handshakeTimeout,
		ReadBufferSize:   readBufferSize,
		WriteBufferSize:  clientBufferSize,
		WriteBufferPool:  &clientBuffers,
	}
	c, response, err := dialer.DialContext(ctx, "ws://"+addr+path, nil)
	if err != nil {
		if response != nil {
			text, _ := io.ReadAll(io.LimitReader(response.Body, 256)) // the library keeps the beginning only
			return nil, core.Errorf(core.CodeUnavailable, "%s answered %s to a websocket on %s: %s", addr, response.Status, path, strings.TrimSpace(string(text)))
		}
		return nil, core.Errorf(core.CodeUnavailable, "connect to %s: %w", addr, err)
	}
	return newConn(c, o), nil
}

// Upgrade turns an HTTP request into a connection. On failure it has answered the request. Requests of web pages of another
// origin are refused.
func Upgrade(w http.ResponseWriter, r *http.Request, o Options) (*Conn, error) {
	upgrader := websocket.Upgrader{
		HandshakeTimeout: handshakeTimeout,
		ReadBufferSize:   readBufferSize,
		WriteBufferSize:  serverBufferSize,
		WriteBufferPool:  &serverBuffers,
	}
	c, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil, core.Errorf(core.CodeBadArgument, "upgrade %s from %s to a websocket: %w", r.URL.Path, r.RemoteAddr, err)
	}
	return newConn(c, o.withDefaults()), nil
}
