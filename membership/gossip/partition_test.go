package gossip

import (
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// cuts is a network that can be cut in two.
type cuts struct {
	now atomic.Bool // while true nothing passes between the sides
	mu  struct {
		sync.Mutex
		sides map[string]string // address → side
	}
}

// wrap puts a member on a side.
func (c *cuts) wrap(t *testing.T, side string) func(*Monitor) {
	return func(m *Monitor) {
		m.wrap = func(tr memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
			ip, port, err := tr.FinalAdvertiseAddr("", 0)
			if err != nil {
				t.Fatal(err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.mu.sides == nil {
				c.mu.sides = make(map[string]string)
			}
			c.mu.sides[net.JoinHostPort(ip.String(), strconv.Itoa(port))] = side
			return cutTransport{tr, c, side}
		}
	}
}

// cutTransport is the network as one side has it.
type cutTransport struct {
	memberlist.NodeAwareTransport
	cuts *cuts
	side string
}

func (t cutTransport) passes(a memberlist.Address) bool {
	t.cuts.mu.Lock()
	defer t.cuts.mu.Unlock()
	return !t.cuts.now.Load() || t.cuts.mu.sides[a.Addr] == t.side
}

func (t cutTransport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if !t.passes(a) {
		return time.Now(), nil // lost
	}
	return t.NodeAwareTransport.WriteToAddress(b, a)
}

func (t cutTransport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if !t.passes(a) {
		return nil, errors.New("the network is cut")
	}
	return t.NodeAwareTransport.DialAddressTimeout(a, timeout)
}

func TestPartition_HealsThroughTheJoinList(t *testing.T) {
	t.Parallel()
	var net cuts
	never := func(m *Monitor) { m.reconnectEvery = time.Hour }
	a := start(t, host("a"), nil, net.wrap(t, "left"), never)
	b := start(t, host("b"), []string{a.Address()}, net.wrap(t, "left"), never)
	c := start(t, host("c"), []string{a.Address()}, net.wrap(t, "right"), never)
	partition(&net, a, b, c)
}

// Nobody's list names the other side: serf tries those that it lost.
func TestPartition_HealsWithoutAJoinList(t *testing.T) {
	t.Parallel()
	var net cuts
	soon := func(m *Monitor) { m.reconnectEvery = 200 * time.Millisecond }
	a := start(t, host("a"), nil, net.wrap(t, "left"), soon)
	b := start(t, host("b"), nil, net.wrap(t, "left"), soon)
	c := start(t, host("c"), nil, net.wrap(t, "right"), soon)
	if _, err := a.agent.Join([]string{b.Address(), c.Address()}, true); err != nil {
		t.Fatal(err)
	}
	partition(&net, a, b, c)
}

// partition cuts c off, and heals it.
func partition(net *cuts, a, b, c *agent) {
	all := []*agent{a, b, c}
	for _, m := range all {
		m.awaitIDs("a", "b", "c")
	}
	net.now.Store(true)
	a.awaitIDs("a", "b")
	b.awaitIDs("a", "b")
	c.awaitIDs("c")
	net.now.Store(false)
	for _, m := range all {
		m.awaitIDs("a", "b", "c")
	}
}
