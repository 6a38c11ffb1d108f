package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// TestCalls_WithAContextThatIsOver makes every call on messages with one: none reaches the server.
func TestCalls_WithAContextThatIsOver(t *testing.T) {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/columba.v1.AdminService/ListHosts" { // which a client asks by itself
			calls.Add(1)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	c, err := Dial(t.Context(), server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, ctx := range []context.Context{over, late} {
		for name, call := range map[string]func() error{
			"Pull":        func() error { _, err := c.Pull(ctx, "/t/q", "g", 1, time.Second); return err },
			"Ack":         func() error { _, err := c.Ack(ctx, "token"); return err },
			"Nack":        func() error { _, err := c.Nack(ctx, []string{"token"}); return err },
			"Reject":      func() error { _, err := c.Reject(ctx, []string{"token"}, "no"); return err },
			"Extend":      func() error { _, err := c.Extend(ctx, []string{"token"}, time.Minute); return err },
			"PublishOnce": func() error { _, err := c.PublishOnce(ctx, "/t/q", Message{}); return err },
		} {
			if err := call(); err == nil {
				t.Errorf("%s does not fail", name)
			}
			if n := calls.Swap(0); n != 0 {
				t.Errorf("%s reached the server %d times", name, n)
			}
		}
	}
}
