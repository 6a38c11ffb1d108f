package clienttest

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/columbamq/columba/internal/netmem"
)

// direction of what travels between the clients and the broker.
type direction int

const (
	requests direction = iota // from clients
	answers                   // to clients
)

// network connects clients to the process that listens. It can lose what they send or get.
type network struct {
	mu struct {
		sync.Mutex
		listener *netmem.Listener // nil: nobody listens
		conns    map[*conn]struct{}
		lost     [2]int        // by direction: how many reasons there are
		healed   chan struct{} // closed when nothing is lost any more
	}
}

func newNetwork() *network {
	n := &network{}
	n.mu.conns = make(map[*conn]struct{})
	return n
}

// conn is the client's end of a connection.
type conn struct {
	*netmem.Conn
	n    *network
	mute atomic.Bool // what it sends is lost
	torn bool        // something was lost; the network's
}

// Write loses what it is given while requests are lost.
func (c *conn) Write(b []byte) (int, error) {
	if c.mute.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	c.n.mu.Lock()
	delete(c.n.mu.conns, c)
	c.n.mu.Unlock()
	return c.Conn.Close()
}

// listen opens the address.
func (n *network) listen() *netmem.Listener {
	l := netmem.Listen(Addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.listener = l
	return l
}

// dial connects to who listens. It waits while the network loses anything.
func (n *network) dial(ctx context.Context) (net.Conn, error) {
	for {
		l, wait := n.way()
		switch {
		case wait != nil:
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil, dialError(context.Cause(ctx))
			}
		case l == nil:
			return nil, dialError(syscall.ECONNREFUSED)
		}
		c, err := l.Dial(ctx)
		if err != nil {
			return nil, err
		}
		return n.connected(l, c.(*netmem.Conn))
	}
}

func (n *network) way() (*netmem.Listener, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.healed != nil {
		return nil, n.mu.healed
	}
	return n.mu.listener, nil
}

// connected takes a connection into account, unless who listened is gone.
func (n *network) connected(l *netmem.Listener, near *netmem.Conn) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.listener != l {
		near.Reset()
		return nil, dialError(syscall.ECONNREFUSED)
	}
	c := &conn{Conn: near, n: n}
	n.mu.conns[c] = struct{}{}
	n.applyLocked(c)
	return c, nil
}

func dialError(err error) error {
	return &net.OpError{Op: "dial", Net: "memory", Addr: netmem.Addr(Addr), Err: err}
}

// applyLocked makes a connection lose what is lost.
func (n *network) applyLocked(c *conn) {
	c.mute.Store(n.mu.lost[requests] > 0)
	c.Hold(n.mu.lost[answers] > 0)
	c.torn = c.torn || n.mu.healed != nil
}

// lose loses what travels in a direction until heal, which breaks the connections that lost something.
func (n *network) lose(d direction) (heal func()) {
	n.change(d, 1)
	return sync.OnceFunc(func() { n.change(d, -1) })
}

func (n *network) change(d direction, by int) {
	n.mu.Lock()
	n.mu.lost[d] += by
	lossy := slices.Max(n.mu.lost[:]) > 0
	switch {
	case lossy && n.mu.healed == nil:
		n.mu.healed = make(chan struct{})
	case !lossy && n.mu.healed != nil:
		close(n.mu.healed)
		n.mu.healed = nil
	}
	for c := range n.mu.conns {
		n.applyLocked(c)
	}
	n.mu.Unlock()
	if !lossy {
		n.reset(func(c *conn) bool { return c.torn })
	}
}

// heal ends all losses.
func (n *network) heal() {
	n.mu.Lock()
	lost := n.mu.lost
	n.mu.Unlock()
	for d, reasons := range lost {
		if reasons > 0 {
			n.change(direction(d), -reasons)
		}
	}
}

// reset breaks the connections that match; what is under way is lost.
func (n *network) reset(match func(*conn) bool) {
	n.mu.Lock()
	var broken []*conn
	for c := range n.mu.conns {
		if match(c) {
			broken = append(broken, c)
		}
	}
	n.mu.Unlock()
	for _, c := range broken {
		c.Reset()
	}
}

// down ends all that the process has of the network, at once.
func (n *network) down() {
	n.mu.Lock()
	l := n.mu.listener
	n.mu.listener = nil
	n.mu.Unlock()
	if l != nil {
		_ = l.Close() // it has no error
	}
	n.reset(func(*conn) bool { return true })
}
