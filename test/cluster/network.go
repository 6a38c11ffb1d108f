package cluster

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/netmem"
)

// network connects addresses, in memory. It loses packets between addresses that are cut off from each other:
// connections stand still, in that direction, and are not made. An address whose process stands still neither reads nor
// writes. A slow one waits before each read, and so does who reads from it.
type network struct {
	mu struct {
		sync.Mutex
		listeners map[string]*listener
		ends      map[*end]struct{}
		paused    map[string]bool
		dropped   map[path]int // directions that lose packets, and how many reasons there are
		slow      map[string]time.Duration
		changed   chan struct{}
		latency   time.Duration // most that a read waits
		random    *rand.Rand
	}
}

// path is a direction.
type path struct{ from, to string }

func newNetwork() *network {
	n := &network{}
	n.mu.listeners = make(map[string]*listener)
	n.mu.ends = make(map[*end]struct{})
	n.mu.paused = make(map[string]bool)
	n.mu.dropped = make(map[path]int)
	n.mu.slow = make(map[string]time.Duration)
	n.mu.changed = make(chan struct{})
	n.mu.random = rand.New(rand.NewPCG(1, 1))
	return n
}

// delays makes reads wait up to latency, and answers what it was before.
func (n *network) delays(latency time.Duration, random *rand.Rand) (before time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before = n.mu.latency
	n.mu.latency, n.mu.random = latency, random
	return before
}

// updateLocked makes all ends what they should be after a change.
func (n *network) updateLocked() {
	close(n.mu.changed)
	n.mu.changed = make(chan struct{})
	for e := range n.mu.ends {
		e.Hold(n.heldLocked(e))
	}
}

func (n *network) heldLocked(e *end) bool {
	return n.mu.paused[e.self] || n.mu.paused[e.peer] || n.mu.dropped[path{e.peer, e.self}] > 0
}

// hold stops everything from and to an address, as if its process stood still; the returned function lets it go on.
func (n *network) hold(addr string) (release func()) {
	set := func(held bool) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.mu.paused[addr] = held
		n.updateLocked()
	}
	set(true)
	return sync.OnceFunc(func() { set(false) })
}

// standsStill is a channel to wait for while the process at an address does.
func (n *network) standsStill(addr string) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.paused[addr] {
		return n.mu.changed
	}
	return nil
}

// slow makes an address wait before each read, and those that read from it, until the returned function is called.
func (n *network) slow(addr string, by time.Duration) (heal func()) {
	add := func(by time.Duration) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.mu.slow[addr] += by
	}
	add(by)
	return sync.OnceFunc(func() { add(-by) })
}

// slowness is by how much.
func (n *network) slowness(addr string) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.slow[addr]
}

// unsent is a channel to wait for while nothing goes from one address to another.
func (n *network) unsent(from, to string) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.dropped[path{from, to}] > 0 || n.mu.paused[from] {
		return n.mu.changed
	}
	return nil
}

func (n *network) unreachableLocked(a, b string) bool {
	return n.mu.dropped[path{a, b}] > 0 || n.mu.dropped[path{b, a}] > 0 || n.mu.paused[a]
}

// drop loses what goes along the paths, until the returned function is called.
func (n *network) drop(paths ...path) (heal func()) {
	add := func(k int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, p := range paths {
			n.mu.dropped[p] += k
		}
		n.updateLocked()
	}
	add(1)
	return sync.OnceFunc(func() { add(-1) })
}

// reset breaks the connections that match.
func (n *network) reset(match func(a, b string) bool) {
	var broken []*end
	n.mu.Lock()
	for e := range n.mu.ends {
		if match(e.self, e.peer) || match(e.peer, e.self) {
			broken = append(broken, e)
		}
	}
	n.mu.Unlock()
	for _, e := range broken {
		e.Reset()
	}
}

// port is a process's way to the network. When the process dies, its connections end and nothing of it gets out any
// more.
type port struct {
	n    *network
	addr string
	dead chan struct{}
	once sync.Once
	l    *listener                           // nil while it does not listen
	sent atomic.Pointer[func(packet []byte)] // told of each packet of a connection that the process dialed, before it leaves; nil: nobody is
}

func (n *network) attach(addr string) *port {
	return &port{n: n, addr: addr, dead: make(chan struct{})}
}

func (p *port) listen() net.Listener {
	l := &listener{n: p.n, addr: netmem.Addr(p.addr), accepted: make(chan net.Conn, 1024), closed: make(chan struct{})}
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	p.l = l
	p.n.mu.listeners[p.addr] = l
	return l
}

// kill ends everything of the process at once.
func (p *port) kill() {
	p.once.Do(func() {
		close(p.dead)
		p.n.mu.Lock()
		if p.l != nil {
			p.l.Close()
			if p.n.mu.listeners[p.addr] == p.l {
				delete(p.n.mu.listeners, p.addr)
			}
		}
		var mine []*end
		for e := range p.n.mu.ends {
			if e.owner == p || e.owner == nil && e.self == p.addr {
				mine = append(mine, e)
			}
		}
		p.n.mu.Unlock()
		for _, e := range mine {
			e.Close()
		}
	})
}

const dialTimeout = 2 * time.Second

// dial connects to an address.
func (p *port) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for {
		c, wait, err := p.tryDial(addr)
		if wait == nil {
			return c, err
		}
		select {
		case <-wait:
		case <-p.dead:
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: "memory", Addr: netmem.Addr(addr), Err: context.Cause(ctx)}
		}
	}
}

// tryDial answers a channel to wait for when no packet gets through now. A process that stands still is connected to
// all the same.
func (p *port) tryDial(addr string) (c net.Conn, wait <-chan struct{}, err error) {
	n := p.n
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-p.dead:
		return nil, nil, core.Errorf(core.CodeUnavailable, "the process at %s is dead", p.addr)
	default:
	}
	if n.unreachableLocked(p.addr, addr) {
		return nil, n.mu.changed, nil
	}
	l := n.mu.listeners[addr]
	if l == nil {
		return nil, nil, &net.OpError{Op: "dial", Net: "memory", Addr: netmem.Addr(addr), Err: syscall.ECONNREFUSED}
	}
	a, b := netmem.Pipe(netmem.Addr(addr))
	near := &end{Conn: a.(*netmem.Conn), n: n, self: p.addr, peer: addr, owner: p}
	far := &end{Conn: b.(*netmem.Conn), n: n, self: addr, peer: p.addr}
	if !l.offer(far) {
		return nil, nil, &net.OpError{Op: "dial", Net: "memory", Addr: netmem.Addr(addr), Err: syscall.ECONNREFUSED}
	}
	for _, e := range []*end{near, far} {
		n.mu.ends[e] = struct{}{}
		e.Hold(n.heldLocked(e))
	}
	return near, nil, nil
}

// listener hands dialed connections to Accept, unless its process stands still.
type listener struct {
	n        *network
	addr     netmem.Addr
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (l *listener) offer(c net.Conn) bool {
	select {
	case <-l.closed:
		return false
	default:
	}
	select {
	case l.accepted <- c:
		return true
	default:
		return false
	}
}

func (l *listener) Accept() (net.Conn, error) {
	for open := true; open; {
		accepted, wait := l.accepted, l.n.standsStill(string(l.addr))
		if wait != nil {
			accepted = nil
		}
		select {
		case c := <-accepted:
			return c, nil
		case <-wait:
		case <-l.closed:
			open = false
		}
	}
	for { // what was connected and not accepted ends with the listener
		select {
		case c := <-l.accepted:
			c.Close()
		default:
			return nil, &net.OpError{Op: "accept", Net: "memory", Addr: l.addr, Err: net.ErrClosed}
		}
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }

// end is one end of a connection.
type end struct {
	*netmem.Conn
	n          *network
	self, peer string
	owner      *port // of the end that dialed
}

func (e *end) Read(b []byte) (int, error) {
	k, err := e.Conn.Read(b)
	if err != nil {
		return k, err
	}
	e.n.mu.Lock()
	wait := e.n.mu.slow[e.self] + e.n.mu.slow[e.peer]
	if most := e.n.mu.latency; most > 0 {
		wait += time.Duration(e.n.mu.random.Int64N(int64(most)))
	}
	e.n.mu.Unlock()
	if wait > 0 {
		time.Sleep(wait)
	}
	return k, nil
}

func (e *end) Write(b []byte) (int, error) {
	if e.owner != nil {
		if f := e.owner.sent.Load(); f != nil {
			(*f)(b)
		}
	}
	return e.Conn.Write(b)
}

func (e *end) Close() error {
	err := e.Conn.Close()
	e.n.mu.Lock()
	delete(e.n.mu.ends, e)
	e.n.mu.Unlock()
	return err
}
