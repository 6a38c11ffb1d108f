package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// fewConnections is a server of which one address may have three connections. Its clock stands still between calls of
// pass.
type fewConnections struct {
	t     *testing.T
	addr  string
	conns *connections
	clock atomic.Int64
}

func serveFewConnections(t *testing.T, page http.HandlerFunc) *fewConnections {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	g := newGuard(log, prometheus.NewRegistry(), nil, 4)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fewConnections{t: t, addr: l.Addr().String(), conns: g.conns}
	g.conns.now = func() time.Time { return someTime.Add(time.Duration(f.clock.Load())) }
	s := newServer(log, prometheus.NewRegistry(), g, page, l)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	return f
}

// dial opens a connection, and waits until the server has that many idle ones.
func (f *fewConnections) dial(idle int) net.Conn {
	f.t.Helper()
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	f.idle(idle)
	return c
}

func (f *fewConnections) idle(want int) {
	f.t.Helper()
	waitUntil(f.t, fmt.Sprintf("%d idle connections", want), func() bool {
		f.conns.mu.Lock()
		defer f.conns.mu.Unlock()
		h := f.conns.mu.byHost["127.0.0.1"]
		return h != nil && h.idle.Len() == want
	})
}

func (f *fewConnections) pass(d time.Duration) { f.clock.Add(int64(d)) }

// ask sends a request over c and wants its answer.
func (f *fewConnections) ask(c net.Conn) {
	f.t.Helper()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		f.t.Fatalf("no answer: %v", err)
	}
	res.Body.Close()
}

func (f *fewConnections) wantClosed(what string, c net.Conn) {
	f.t.Helper()
	if n, err := c.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		f.t.Errorf("%s: %d bytes, %v, want its end", what, n, err)
	}
}

// TestIdleConnectionMakesRoom: connections that an address does not use do not keep its next one out. The one that is
// idle for longest is closed.
func TestIdleConnectionMakesRoom(t *testing.T) {
	f := serveFewConnections(t, okPage)
	first, second := f.dial(1), f.dial(2)
	f.ask(second)
	f.idle(2)
	f.dial(3)
	refused, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	refused.SetDeadline(time.Now().Add(patience))
	f.wantClosed("a connection while all are fresh", refused)
	f.pass(2 * firstRequest)
	f.ask(f.dial(3))
	f.wantClosed("the first, on which no request came", first)
	f.pass(spareAfter)
	f.ask(f.dial(3))
	f.wantClosed("the second, idle since its request", second)
}

// TestBusyConnectionsMakeNoRoom: a connection with a request under way stays; the new one is refused.
func TestBusyConnectionsMakeNoRoom(t *testing.T) {
	release := make(chan struct{})
	f := serveFewConnections(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		okPage(w, r)
	})
	var busy []net.Conn
	for range 3 {
		c := f.dial(1)
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		f.idle(0)
		busy = append(busy, c)
	}
	f.pass(time.Hour)
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	f.wantClosed("a connection too many", c)
	close(release)
	for _, c := range busy {
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("no answer on a busy connection: %v", err)
		}
		res.Body.Close()
	}
}
