package process

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy passes TCP connections on to a server until the test ends, and ends some of them with a reset on both sides.
// Safe for concurrent use.
type Proxy struct {
	Addr string

	to     string
	listen net.Listener
	odds   atomic.Int64 // one of so many pieces that pass resets its connection; 0: none
	resets atomic.Int64
	work   sync.WaitGroup
	mu     struct {
		sync.Mutex
		open   map[*passage]struct{}
		closed bool
	}
}

// NewProxy passes connections on to addr, where nobody need listen yet.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), to: addr, listen: l}
	p.mu.open = make(map[*passage]struct{})
	p.work.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// ResetAll resets all connections that are open now.
func (p *Proxy) ResetAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for x := range p.mu.open {
		p.resets.Add(1)
		x.reset()
	}
}

// ResetOneOf has one of so many pieces that pass reset its connection, from now on; 0: none.
func (p *Proxy) ResetOneOf(pieces int) { p.odds.Store(int64(pieces)) }

// Resets is how many connections were reset.
func (p *Proxy) Resets() int { return int(p.resets.Load()) }

func (p *Proxy) close() {
	p.listen.Close()
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	p.ResetAll()
	p.work.Wait()
}

func (p *Proxy) accept() {
	for {
		in, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.pass(in.(*net.TCPConn)) })
	}
}

// passage is the two connections that are one through the proxy.
type passage struct{ in, out *net.TCPConn }

func (x *passage) reset() {
	for _, c := range []*net.TCPConn{x.in, x.out} {
		_ = c.SetLinger(0) // both fail on one that is closed already
		_ = c.Close()
	}
}

// pass lasts as long as the connection.
func (p *Proxy) pass(in *net.TCPConn) {
	out, err := net.Dial("tcp", p.to)
	if err != nil {
		_ = in.SetLinger(0)
		in.Close()
		return
	}
	x := &passage{in, out.(*net.TCPConn)}
	p.mu.Lock()
	if p.mu.closed {
		x.reset()
	}
	p.mu.open[x] = struct{}{}
	p.mu.Unlock()
	var ways sync.WaitGroup
	ways.Go(func() { p.copy(x, x.out, x.in) })
	p.copy(x, x.in, x.out)
	ways.Wait()
	x.in.Close()
	x.out.Close()
	p.mu.Lock()
	delete(p.mu.open, x)
	p.mu.Unlock()
}

// copy passes on what one side sends, to its end.
func (p *Proxy) copy(x *passage, to, from *net.TCPConn) {
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		if odds := p.odds.Load(); n > 0 && odds > 0 && rand.Int64N(odds) == 0 {
			p.resets.Add(1)
			x.reset()
			return
		}
		if n > 0 {
			if _, err := to.Write(piece[:n]); err != nil {
				x.reset()
				return
			}
		}
		if err == io.EOF {
			_ = to.CloseWrite()
			return
		}
		if err != nil {
			x.reset()
			return
		}
	}
}
