package node

import (
	"context"
	"net"
	"sync"
)

// tether keeps the connections to the metadata, to end those that lead to where they are no more: what waits for an
// answer there would wait for its deadline. Safe for concurrent use.
type tether struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu struct {
		sync.Mutex
		conns map[*tethered]struct{}
	}
}

// tethered is a connection that its tether can end.
type tethered struct {
	net.Conn
	addr  string
	owner *tether
}

func newTether(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *tether {
	t := &tether{dial: dial}
	t.mu.conns = make(map[*tethered]struct{})
	return t
}

// Dial opens a connection.
func (t *tether) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := t.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &tethered{conn, addr, t}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.conns[c] = struct{}{}
	return c, nil
}

// keep ends all connections but those to addr.
func (t *tether) keep(addr string) {
	t.mu.Lock()
	var others []*tethered
	for c := range t.mu.conns {
		if c.addr != addr {
			others = append(others, c)
		}
	}
	t.mu.Unlock()
	for _, c := range others {
		_ = c.Close() // who reads from it is told
	}
}

func (c *tethered) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.mu.conns, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}
