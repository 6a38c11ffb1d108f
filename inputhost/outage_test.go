package inputhost

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/wire"
)

// try publishes a message that has so much time, and returns how that ended.
func (p *client) try(timeout time.Duration) error {
	p.r.t.Helper()
	out := make(chan error, 1)
	err := p.pub.Append(p.r.t.Context(), &wire.Record{Payload: []byte("x")}, timeout, publish.DoneFunc(func(_ core.MessageID, _ core.Receipt, err error) { out <- err }))
	if err != nil {
		p.r.t.Fatal(err)
	}
	return <-out
}

// Without an extent nothing that was published is stored, and publishers are told so, and why, however much time they
// have.
func TestHost_NoExtent(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(r *harness) // of the outage
		end   func(r *harness)
		why   string
		most  time.Duration // until what is published is refused
	}{
		"too few stores": {
			begin: func(r *harness) { r.stores[0].kill(); r.stores[1].kill() },
			end:   func(r *harness) { r.stores[0].up(); r.stores[1].up() },
			why:   "1 stores",
			most:  saidPatience + time.Second,
		},
		"the controller is away": {
			begin: func(r *harness) { r.ctl.set(func() { r.ctl.mu.away = true }); r.failAll() },
			end:   func(r *harness) { r.ctl.set(func() { r.ctl.mu.away = false }) },
			why:   "the controller is away",
			most:  saidPatience + time.Second,
		},
		"the controller does not answer": {
			begin: func(r *harness) { r.ctl.set(func() { r.ctl.mu.hangs = true }); r.failAll() },
			end:   func(r *harness) { r.ctl.set(func() { r.ctl.mu.hangs = false }) },
			why:   "deadline",
			most:  unsentMost,
		},
	} {
		for _, run := range []func(*testing.T, func(*harness)){oneController, several} {
			t.Run(name, func(t *testing.T) {
				run(t, func(r *harness) {
					p := r.publisher("p", path)
					p.send()
					p.flush()
					c.begin(r)
					synctest.Wait() // what is published goes to no store that is about to be lost
					began := time.Now()
					if err := p.try(c.most + 3*time.Second); core.CodeOf(err) != core.CodeUnavailable || !strings.Contains(err.Error(), c.why) {
						t.Errorf("%v; want it unavailable, and why", err)
					}
					for time.Since(began) < time.Minute { // at every moment of the outage
						err := p.try(300 * time.Millisecond)
						if err != nil && core.CodeOf(err) != core.CodeUnavailable {
							t.Fatalf("after %s: %v; want it unavailable", time.Since(began), err)
						}
						sleep(170 * time.Millisecond)
					}
					c.end(r)
					sleep(callTimeout)
					if err := p.try(10 * time.Second); err != nil {
						t.Errorf("after the outage: %v", err)
					}
				})
			})
		}
	}
}

func oneController(t *testing.T, f func(r *harness)) { bubble(t, 3, nil, f) }

// failAll ends the open extents.
func (r *harness) failAll() {
	for _, q := range r.host.list() {
		for _, w := range q.list(nil) {
			w.Fail("", core.Errorf(core.CodeInternal, "a test ends it"))
		}
	}
}

func TestOutage(t *testing.T) {
	at := func(d time.Duration) time.Time { return time.Unix(1_000_000, 0).Add(d) }
	why := core.Errorf(core.CodeUnavailable, "no stores")
	var o outage
	expect := func(when time.Duration, want bool) {
		t.Helper()
		if got := o.lasts(at(when)); got != want {
			t.Errorf("at %s: %t, want %t", when, got, want)
		}
	}
	expect(time.Second, false)
	if !o.failed(at(0), at(10*time.Millisecond), why, false) {
		t.Error("the log is not told of the beginning")
	}
	expect(openPatience-1, false)
	expect(openPatience, true)
	if o.failed(at(time.Second), at(time.Second), why, true) {
		t.Error("the log is told of each failure")
	}
	expect(time.Second, true)
	later := time.Second + outageOver
	expect(later+1, false)
	o.failed(at(later+2), at(later+3), why, true) // another one
	expect(later+3, false)
	expect(later+2+saidPatience, true)
}

// hang keeps a call until its caller gives up.
func hang(ctx context.Context) (*connect.Response[pb.EnsureExtentResponse], error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
