package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// countedCalls is a client of a server that counts the calls that it gets, and refuses all of them.
func countedCalls(t *testing.T) (*Client, *atomic.Int32) {
	calls := new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/columba.v1.AdminService/ListHosts" { // which a client asks by itself
			calls.Add(1)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	c, err := Dial(t.Context(), server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, calls
}

// messageCalls are all calls on messages, by their names.
func messageCalls(ctx context.Context, c *Client) map[string]func() error {
	return map[string]func() error{
		"Pull":        func() error { _, err := c.Pull(ctx, "/t/q", "g", 1, time.Second); return err },
		"Ack":         func() error { _, err := c.Ack(ctx, "token"); return err },
		"Nack":        func() error { _, err := c.Nack(ctx, []string{"token"}); return err },
		"Reject":      func() error { _, err := c.Reject(ctx, []string{"token"}, "no"); return err },
		"Extend":      func() error { _, err := c.Extend(ctx, []string{"token"}, time.Minute); return err },
		"PublishOnce": func() error { _, err := c.PublishOnce(ctx, "/t/q", Message{}); return err },
	}
}

// TestCalls_WithAContextThatIsOver makes every call on messages with one: none reaches the server.
func TestCalls_WithAContextThatIsOver(t *testing.T) {
	c, calls := countedCalls(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, ctx := range []context.Context{over, late} {
		for name, call := range messageCalls(ctx, c) {
			if err := call(); err == nil {
				t.Errorf("%s does not fail", name)
			}
			if n := calls.Swap(0); n != 0 {
				t.Errorf("%s reached the server %d times", name, n)
			}
		}
	}
}

// TestCalls_OfAClosedClient makes every call on messages, a look-up and a change with one: all fail, and none reaches
// the server. A call that did would leave a connection that nobody closes.
func TestCalls_OfAClosedClient(t *testing.T) {
	c, calls := countedCalls(t)
	c.Close()
	all := messageCalls(t.Context(), c)
	all["GetQueue"] = func() error { _, err := c.Admin().GetQueue(t.Context(), "/t/q"); return err }
	all["DeleteQueue"] = func() error { return c.Admin().DeleteQueue(t.Context(), "/t/q") }
	for name, call := range all {
		if err := call(); !errors.Is(err, ErrUnavailable) || core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("%s: %v, want %s", name, err, core.CodeUnavailable)
		}
		if n := calls.Swap(0); n != 0 {
			t.Errorf("%s reached the server %d times", name, n)
		}
	}
}
