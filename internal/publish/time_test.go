package publish

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// memory is hosts that are reached within the process, for tests of time.
type memory struct {
	listeners map[string]*netmem.Listener
	servers   []*http.Server
	hosts     []*publishtest.Host
	wg        sync.WaitGroup
	cancel    context.CancelFunc
	ctx       context.Context
}

func (m *memory) serve(name string, h *publishtest.Host) {
	mux := http.NewServeMux()
	h.Handle(mux)
	l, srv := netmem.Listen(name), &http.Server{Handler: mux}
	if m.listeners == nil {
		m.listeners = map[string]*netmem.Listener{}
		m.ctx, m.cancel = context.WithCancel(context.Background())
	}
	m.listeners[name] = l
	m.servers, m.hosts = append(m.servers, srv), append(m.hosts, h)
	m.wg.Go(func() { srv.Serve(l) })
}

func (m *memory) publisher(route func() []Host) *Publisher {
	return m.routed(func(context.Context) ([]Host, error) { return route(), nil })
}

func (m *memory) routed(route func(context.Context) ([]Host, error)) *Publisher {
	p := New(Config{
		Queue: "/t/q",
		Route: route,
		Dial: func(ctx context.Context, h Host) (*ws.Mux, error) {
			c, err := ws.Dial(ctx, h.Address, "/v1/publish", ws.Options{NetDial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return m.listeners[string(h.ID)].Dial(ctx)
			}})
			if err != nil {
				return nil, err
			}
			mux := ws.NewMux(c, nil)
			m.wg.Go(func() { mux.Run(m.ctx) })
			return mux, nil
		},
	})
	m.wg.Go(func() { p.Run(m.ctx) })
	return p
}

// only is a publisher that knows one host, this one.
func (m *memory) only(h *publishtest.Host) *Publisher {
	m.serve("in", h)
	return m.publisher(func() []Host { return hostsOf("in") })
}

func (m *memory) stop() {
	m.cancel()
	for _, h := range m.hosts {
		h.Cut()
	}
	for _, s := range m.servers {
		s.Close()
	}
	m.wg.Wait()
}

type result struct {
	at  core.Receipt
	err error
	in  time.Duration
}

func publishOne(t *testing.T, p *Publisher) result {
	t.Helper()
	began := time.Now()
	c := make(chan result, 1)
	err := p.Append(t.Context(), &wire.Record{Payload: []byte("a")}, 0, DoneFunc(func(_ core.MessageID, at core.Receipt, err error) {
		c <- result{at, err, time.Since(began)}
	}))
	if err != nil {
		t.Fatal(err)
	}
	return <-c
}

// A host that takes a batch and stays silent, while its connection lives, is left for another one.
func TestPublisher_SilentHostIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		m.serve("silent", &publishtest.Host{OnBatch: func(*publishtest.Batch) {}})
		other := &publishtest.Host{}
		m.serve("other", other)
		defer m.stop()
		routed := 0
		p := m.publisher(func() []Host {
			if routed++; routed == 1 {
				return []Host{{ID: "silent", Address: "silent:1"}}
			}
			return []Host{{ID: "silent", Address: "silent:1"}, {ID: "other", Address: "other:1"}}
		})
		got := publishOne(t, p)
		if got.err != nil || got.at.Extent != other.Extent || got.in < answerTimeout || got.in > answerTimeout+3*tick {
			t.Errorf("got %+v, want a receipt of the other host after %s", got, answerTimeout)
		}
	})
}

// A host that owes answers to some batches stores what comes after them.
func TestPublisher_UnansweredBatchesDoNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const owed = 2 * maxGathering
		var m memory
		batches := 0
		p := m.only(&publishtest.Host{OnBatch: func(b *publishtest.Batch) {
			if batches++; batches > owed {
				b.Ack()
			}
		}})
		defer m.stop()
		began := time.Now()
		var done []time.Duration
		var mu sync.Mutex
		for range 60 {
			err := p.Append(t.Context(), &wire.Record{Payload: []byte("a")}, 0, DoneFunc(func(_ core.MessageID, _ core.Receipt, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					done = append(done, time.Since(began))
				}
			}))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		want := maxGathering*100*time.Millisecond + (owed-maxGathering)*(gatherMost+tick)
		if len(done) == 0 || done[0] > want {
			t.Errorf("records were stored after %s, want the first within %s", done, want)
		}
	})
}

func TestPublisher_SilenceIsUnknownAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		m.serve("silent", &publishtest.Host{OnBatch: func(*publishtest.Batch) {}})
		defer m.stop()
		p := m.publisher(func() []Host { return []Host{{ID: "silent", Address: "silent:1"}} })
		got := publishOne(t, p)
		if !errors.Is(got.err, core.ErrUnknownOutcome) || got.in != defaultTimeout {
			t.Errorf("got %+v, want an unknown outcome after %s", got, defaultTimeout)
		}
	})
}

func TestPublisher_NoHostIsUnavailableAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		m.serve("unused", &publishtest.Host{})
		defer m.stop()
		p := m.publisher(func() []Host { return nil })
		got := publishOne(t, p)
		if !errors.Is(got.err, core.ErrUnavailable) || errors.Is(got.err, core.ErrUnknownOutcome) || got.in != defaultTimeout {
			t.Errorf("got %+v, want unavailable after %s", got, defaultTimeout)
		}
	})
}

// Records that come slowly share readings of the clock with neighbours of the last tick only. A timeout of its own is
// exact.
func TestPublisher_SharedReadingsAreATickOldAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		m.serve("unused", &publishtest.Host{})
		defer m.stop()
		p := m.publisher(func() []Host { return nil })
		var owners sync.WaitGroup
		var early atomic.Int64
		send := func(timeout time.Duration, by time.Duration) {
			owners.Add(1)
			began := time.Now()
			want := timeout
			if timeout == 0 {
				want = defaultTimeout
			}
			err := p.Append(t.Context(), &wire.Record{Payload: []byte("a")}, timeout, DoneFunc(func(core.MessageID, core.Receipt, error) {
				defer owners.Done()
				took := time.Since(began)
				if took < want-by || took > want+tick {
					t.Errorf("a record with a timeout of %s failed after %s", want, took)
				}
				if took < want {
					early.Add(1)
				}
			}))
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range 400 {
			if i%3 == 0 {
				send(time.Duration(1+i)*100*time.Millisecond, 0)
			} else {
				send(0, tick)
			}
			time.Sleep(70 * time.Millisecond)
		}
		owners.Wait()
		if early.Load() == 0 {
			t.Error("no record used a reading of a neighbour")
		}
	})
}

func TestPublisher_UnansweredIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		p := m.only(&publishtest.Host{OnBatch: func(b *publishtest.Batch) { b.Store() }})
		defer m.stop()
		if got := publishOne(t, p); !errors.Is(got.err, core.ErrUnknownOutcome) {
			t.Errorf("got %+v, want unknown outcome", got)
		}
	})
}

func TestPublisher_ThrottledWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 150 * time.Millisecond
		var m memory
		var throttled time.Time
		again := time.Duration(-1)
		p := m.only(&publishtest.Host{OnBatch: func(b *publishtest.Batch) {
			if throttled.IsZero() {
				throttled = time.Now()
				b.Throttle(pause)
				b.Refuse(core.CodeThrottled)
				return
			}
			again = time.Since(throttled)
			b.Ack()
		}})
		defer m.stop()
		if got := publishOne(t, p); got.err != nil || again < pause || again > pause+tick {
			t.Errorf("got %+v, sent again after %s, want %s", got, again, pause)
		}
	})
}

// A publisher that was refused again sends small pieces, until the host has refused nothing for a while.
func TestPublisher_ThrottledSendsAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		var batches, largest atomic.Int64
		p := m.only(&publishtest.Host{OnBatch: func(b *publishtest.Batch) {
			switch n := batches.Add(1); {
			case n == 1 || n == 3:
				b.Throttle(20 * time.Millisecond)
				b.Refuse(core.CodeThrottled)
				return
			case n > 4: // what was made before the second refusal has its size
				largest.Store(max(largest.Load(), int64(len(b.Payloads()))))
			}
			b.Ack()
		}})
		defer m.stop()
		time.Sleep(time.Millisecond) // its clock begins with it
		payload := make([]byte, 1<<10)
		send := func(n int) {
			for range n {
				if err := p.Append(t.Context(), &wire.Record{Payload: payload}, 0, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		send(1) // refused, then stored
		send(1) // refused, then stored
		send(600)
		if n := batches.Load(); largest.Load() > paceLeast>>10 || n < 10 {
			t.Errorf("%d messages of 1 KiB in a batch, of %d; want at most %d", largest.Load(), n, paceLeast>>10)
		}
	})
}

func TestPublisher_ThrottledToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		p := m.only(&publishtest.Host{OnBatch: func(b *publishtest.Batch) {
			b.Throttle(time.Hour)
			b.Refuse(core.CodeThrottled)
		}})
		defer m.stop()
		if got := publishOne(t, p); !errors.Is(got.err, core.ErrThrottled) || errors.Is(got.err, core.ErrUnknownOutcome) {
			t.Errorf("got %+v, want throttled", got)
		}
	})
}
