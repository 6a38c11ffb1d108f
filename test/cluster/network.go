package cluster

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/netmem"
)

// network connects hosts by their addresses, in memory. Connections can be cut and held up.
type network struct {
	mu struct {
		sync.Mutex
		listeners map[string]*netmem.Listener
		conns     map[*conn]struct{}
		held      map[string]chan struct{} // by address; closed when it goes on
	}
}

func newNetwork() *network {
	n := &network{}
	n.mu.listeners = make(map[string]*netmem.Listener)
	n.mu.conns = make(map[*conn]struct{})
	n.mu.held = make(map[string]chan struct{})
	return n
}

func (n *network) listen(addr string) *netmem.Listener {
	l := netmem.Listen(addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.listeners[addr] = l
	return l
}

const dialTimeout = 2 * time.Second

// dialFrom is the dialer of the host at from.
func (n *network) dialFrom(from string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		n.mu.Lock()
		l := n.mu.listeners[addr]
		n.mu.Unlock()
		if l == nil {
			return nil, core.Errorf(core.CodeUnavailable, "nothing listens at %s", addr)
		}
		ctx, cancel := context.WithTimeout(ctx, dialTimeout) // who is held up is still connected to, as a stopped process is
		defer cancel()
		inner, err := l.Dial(ctx)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner, n: n, from: from, to: addr, closed: make(chan struct{})}
		n.mu.Lock()
		n.mu.conns[c] = struct{}{}
		n.mu.Unlock()
		return c, nil
	}
}

// pass waits while one of the ends is held up.
func (n *network) pass(end <-chan struct{}, ends ...string) error {
	for _, addr := range ends {
		n.mu.Lock()
		held := n.mu.held[addr]
		n.mu.Unlock()
		if held == nil {
			continue
		}
		select {
		case <-held:
		case <-end:
			return net.ErrClosed
		}
	}
	return nil
}

// hold stops everything from and to an address, as if its process stood still; the returned function lets it go on.
func (n *network) hold(addr string) (release func()) {
	held := make(chan struct{})
	n.mu.Lock()
	n.mu.held[addr] = held
	n.mu.Unlock()
	return sync.OnceFunc(func() {
		n.mu.Lock()
		delete(n.mu.held, addr)
		n.mu.Unlock()
		close(held)
	})
}

// cut ends the connections that match.
func (n *network) cut(match func(from, to string) bool) {
	var cut []*conn
	n.mu.Lock()
	for c := range n.mu.conns {
		if match(c.from, c.to) {
			cut = append(cut, c)
		}
	}
	n.mu.Unlock()
	for _, c := range cut {
		c.Close()
	}
}

// conn is a connection that can be cut and held up.
type conn struct {
	net.Conn
	n        *network
	from, to string
	once     sync.Once
	closed   chan struct{}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil {
		err = c.n.pass(c.closed, c.from, c.to)
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if err := c.n.pass(c.closed, c.from, c.to); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.n.mu.Lock()
		delete(c.n.mu.conns, c)
		c.n.mu.Unlock()
		close(c.closed)
	})
	return err
}
