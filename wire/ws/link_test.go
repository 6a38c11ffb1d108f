package ws

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/columbamq/columba/internal/netmem"
)

// link is two ends of one connection, neither of them run yet.
type link struct {
	client, server *Conn
}

// transport makes a link; the test's cleanup ends it.
type transport func(t testing.TB, client, server Options) link

var transports = map[string]transport{"tcp": tcpLink, "memory": memoryLink}

// onEach runs a test over each transport.
func onEach(t *testing.T, test func(t *testing.T, connect transport)) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) { test(t, connect) })
	}
}

func acceptor(t testing.TB, o Options) (http.Handler, chan *Conn) {
	accepted := make(chan *Conn, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Upgrade(w, r, o)
		if err != nil {
			t.Errorf("Upgrade: %v", err)
			return
		}
		accepted <- c
	}), accepted
}

func tcpLink(t testing.TB, client, server Options) link {
	t.Helper()
	handler, accepted := acceptor(t, server)
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return dialLink(t, strings.TrimPrefix(s.URL, "http://"), client, accepted)
}

func memoryLink(t testing.TB, client, server Options) link {
	t.Helper()
	handler, accepted := acceptor(t, server)
	l := netmem.Listen("test")
	client.NetDial = func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }
	s := &http.Server{Handler: handler}
	var wg sync.WaitGroup
	wg.Go(func() { s.Serve(l) })
	t.Cleanup(func() {
		s.Close()
		wg.Wait()
	})
	return dialLink(t, "test", client, accepted)
}

func dialLink(t testing.TB, addr string, o Options, accepted chan *Conn) link {
	t.Helper()
	client, err := Dial(context.Background(), addr, "/", o)
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	l := link{client: client, server: <-accepted}
	t.Cleanup(func() {
		l.client.Abort(nil)
		l.server.Abort(nil)
	})
	return l
}

// running is a connection whose Run was started; wait returns its result.
func running(t testing.TB, c *Conn, h Handler) (wait func() error) {
	result := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { result <- c.Run(ctx, h) })
	for started := false; !started; runtime.Gosched() {
		c.mu.Lock()
		started = c.mu.running
		c.mu.Unlock()
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return func() error { return <-result }
}

func ignore(*Message) error { return nil }

// serve upgrades every request to a connection that lasts as long as its peer, or the test.
func serve(t testing.TB, o Options) (addr string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := Upgrade(w, r, o); err == nil {
			c.Run(ctx, ignore)
		}
	}))
	t.Cleanup(func() {
		cancel()
		s.Close()
	})
	return strings.TrimPrefix(s.URL, "http://")
}
