// Package netmem owns network connections that stay within the process: a listener and buffered, deadline-aware pipes.
package netmem

import (
	"context"
	"net"
	"sync"
)

// Addr is the address of a listener and of both ends of its connections.
type Addr string

// Network is "memory".
func (Addr) Network() string  { return "memory" }
func (a Addr) String() string { return string(a) }

// Listener hands the connections that Dial makes to Accept. Safe for concurrent use.
type Listener struct {
	addr      Addr
	dialed    chan net.Conn
	closed    chan struct{}
	closeOnce sync.Once
}

var _ net.Listener = (*Listener)(nil)

// Listen makes a listener; name is its address in logs.
func Listen(name string) *Listener {
	return &Listener{addr: Addr(name), dialed: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial waits until Accept takes the connection, the listener is closed (net.ErrClosed) or ctx ends.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	near, far := Pipe(l.addr)
	var err error
	select {
	case l.dialed <- far:
		return near, nil
	case <-l.closed:
		err = net.ErrClosed
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, &net.OpError{Op: "dial", Net: l.addr.Network(), Addr: l.addr, Err: err}
}

// Accept waits for the next Dial, or for Close (net.ErrClosed).
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed: // first: a closed listener accepts nothing more
	default:
		select {
		case c := <-l.dialed:
			return c, nil
		case <-l.closed:
		}
	}
	return nil, &net.OpError{Op: "accept", Net: l.addr.Network(), Addr: l.addr, Err: net.ErrClosed}
}

// Close ends Accept and Dial. Connections already accepted live on.
func (l *Listener) Close() error {
	l.closeOnce.Do(func() { close(l.closed) })
	return nil
}

// Addr is the listener's name.
func (l *Listener) Addr() net.Addr { return l.addr }
