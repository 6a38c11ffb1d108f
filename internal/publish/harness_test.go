package publish

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a running publisher and the hosts it can reach.
type harness struct {
	*Publisher
	mu  sync.Mutex
	got map[string]error // by id
	at  map[string]core.Receipt
}

func start(t testing.TB, cfg Config, hosts ...*publishtest.Host) *harness {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[string]*ws.Mux{}
	if cfg.Route == nil {
		cfg.Route = func(context.Context) ([]Host, error) {
			var out []Host
			for i, h := range hosts {
				out = append(out, Host{ID: core.HostID(fmt.Sprintf("in%d", i)), Address: h.Addr()})
			}
			return out, nil
		}
	}
	cfg.Queue, cfg.Client = "/t/q", "test"
	cfg.Dial = func(ctx2 context.Context, h Host) (*ws.Mux, error) {
		mu.Lock()
		m := open[h.Address]
		mu.Unlock()
		if m != nil {
			return m, nil
		}
		if to, err := netip.ParseAddrPort(h.Address); err != nil || !to.Addr().IsLoopback() { // a fuzzed route
			return nil, core.Errorf(core.CodeUnavailable, "not an address of this machine: %q", h.Address)
		}
		c, err := ws.Dial(ctx2, h.Address, "/v1/publish", ws.Options{})
		if err != nil {
			return nil, core.Errorf(core.CodeUnavailable, "dial: %w", err)
		}
		m = ws.NewMux(c, nil)
		mu.Lock()
		open[h.Address] = m
		mu.Unlock()
		wg.Go(func() {
			m.Run(ctx)
			mu.Lock()
			delete(open, h.Address)
			mu.Unlock()
		})
		return m, nil
	}
	r := &harness{Publisher: New(cfg), got: map[string]error{}, at: map[string]core.Receipt{}}
	wg.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return r
}

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (r *harness) append(t testing.TB, payload string, timeout time.Duration) {
	t.Helper()
	err := r.Append(limited(t), &wire.Record{Payload: []byte(payload)}, timeout, DoneFunc(func(_ core.MessageID, at core.Receipt, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, twice := r.got[payload]; twice {
			t.Errorf("%q was told twice", payload)
		}
		r.got[payload], r.at[payload] = err, at
	}))
	if err != nil {
		t.Errorf("append %q: %v", payload, err)
	}
}

func (r *harness) flush(t testing.TB) {
	t.Helper()
	if err := r.Flush(limited(t)); err != nil {
		t.Fatalf("flush: %v", err)
	}
}

func (r *harness) wantAll(t testing.TB, n int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got) != n {
		t.Errorf("got %d outcomes, want %d", len(r.got), n)
	}
	for payload, err := range r.got {
		if err != nil {
			t.Errorf("%q: %v", payload, err)
		}
	}
}

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("m%04d", i)
	}
	return out
}

func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("condition not met within 10 s")
		}
		<-tick.C
	}
}
