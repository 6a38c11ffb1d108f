package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// flood publishes from several publishers, each so often, with many messages on their way, until stop is called, and
// counts what is acknowledged.
type flood struct {
	acked, failed atomic.Int64
	stop          func()
}

func (w *world) flood(path string, publishers, size int, every time.Duration) *flood {
	w.t.Helper()
	f := &flood{}
	ctx, cancel := context.WithCancel(w.t.Context())
	var wg sync.WaitGroup
	body := []byte(strings.Repeat("x", size))
	for range publishers {
		p, err := w.Client.Publisher(w.t.Context(), path, client.MaxInFlight(200, 1<<20), client.PublishTimeout(10*time.Minute))
		w.ok(err)
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = p.PublishAsync(ctx, client.Message{Body: body}, func(_ client.Receipt, err error) {
					if err == nil {
						f.acked.Add(1)
					} else {
						f.failed.Add(1)
					}
				})
				sleep(every)
			}
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Second)
			defer cancel()
			_ = p.Close(closing) // what did not get its turn
		})
	}
	f.stop = func() {
		cancel()
		wg.Wait()
	}
	return f
}

func (w *world) limit(spec core.NamespaceSpec) {
	w.t.Helper()
	spec.Name = "/t"
	_, err := w.Client.Admin().CreateNamespace(w.t.Context(), spec)
	w.ok(err)
}

// TestCluster_NamespaceRate publishes far more than a namespace may, to two queues over two input hosts: what passes is
// its rate, the clients wait by themselves, and nothing fails. When the limit is taken away they go on at once.
func TestCluster_NamespaceRate(t *testing.T) {
	bubble(t, Options{Inputs: 2}, func(w *world) {
		const rate = 100
		w.limit(core.NamespaceSpec{MessagesPerSecond: rate})
		_, err := w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: "/t/other"})
		w.ok(err)
		a, b := w.flood(queue, 2, 10, 10*time.Millisecond), w.flood("/t/other", 2, 10, 10*time.Millisecond)
		sleep(5 * time.Second)
		before := a.acked.Load() + b.acked.Load()
		const length = 10
		sleep(length * time.Second)
		got := a.acked.Load() + b.acked.Load() - before
		if got > rate*length*115/100+rate || got < rate*length*80/100 {
			t.Errorf("%d messages in %d s, want %d a second", got, length, rate)
		}
		w.ok(w.Client.Admin().DeleteNamespace(w.t.Context(), "/t"))
		sleep(3 * time.Second)
		before = a.acked.Load() + b.acked.Load()
		sleep(time.Second)
		if got := a.acked.Load() + b.acked.Load() - before; got < 2*rate {
			t.Errorf("%d messages in a second without a limit", got)
		}
		a.stop()
		b.stop()
		if n := a.failed.Load() + b.failed.Load(); n > 0 {
			t.Errorf("%d messages failed: they had only to wait", n)
		}
	})
}

// TestCluster_NamespaceRateWhenItIsNotInTime has a message wait for its turn longer than it may: throttled, with a
// time.
func TestCluster_NamespaceRateWhenItIsNotInTime(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.limit(core.NamespaceSpec{BytesPerSecond: 1000})
		p := w.publisher()
		body := make([]byte, 20_000)
		_, err := p.Publish(w.t.Context(), client.Message{Body: body}) // owes twenty seconds
		w.ok(err)
		ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Second)
		defer cancel()
		_, err = p.Publish(ctx, client.Message{Body: body})
		var why *core.Error
		if !errors.Is(err, client.ErrThrottled) || !errors.As(err, &why) || why.RetryAfter <= 0 || !strings.Contains(err.Error(), "namespace /t publishes more than its 1000 bytes a second") {
			t.Errorf("what did not get its turn: %v", err)
		}
		w.ok(p.Close(w.t.Context()))
	})
}

// TestCluster_NamespaceRateInACPQueue keeps the order of a publisher that is held back.
func TestCluster_NamespaceRateInACPQueue(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.ok(w.Client.Admin().DeleteQueue(w.t.Context(), queue))
		_, err := w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: queue, Consistency: core.CP})
		w.ok(err)
		w.limit(core.NamespaceSpec{MessagesPerSecond: 100})
		w.group("g", nil)
		want := numbers(1, 500)
		began := time.Now()
		p := w.publisher()
		for i, body := range want {
			w.ok(p.PublishAsync(w.t.Context(), client.Message{Body: []byte(body)}, nil))
			if i%50 == 49 {
				w.ok(p.Flush(w.t.Context()))
			}
		}
		w.ok(p.Close(w.t.Context()))
		if took := time.Since(began); took < 3*time.Second || took > 10*time.Second {
			t.Errorf("500 messages at 100 a second took %s", took)
		}
		con := w.consumer("g")
		for _, body := range want {
			w.ok(w.next(con, body, 1).Ack())
		}
		w.close(con)
	})
}

// TestCluster_NamespaceRateWithoutController cuts an input host off from the controller: it goes on, below its limit,
// and never without one.
func TestCluster_NamespaceRateWithoutController(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		const rate = 100
		w.limit(core.NamespaceSpec{MessagesPerSecond: rate})
		f := w.flood(queue, 2, 10, 5*time.Millisecond)
		sleep(5 * time.Second)
		heal := w.net.drop(path{w.hosts[Input].addr, w.hosts[Controller].addr})
		sleep(10 * time.Second)
		before := f.acked.Load()
		sleep(10 * time.Second)
		if got := f.acked.Load() - before; got > rate*10/5 || got < rate*10/20 {
			t.Errorf("%d messages in 10 s without a controller, want a tenth of %d a second", got, rate)
		}
		heal()
		sleep(10 * time.Second)
		before = f.acked.Load()
		sleep(10 * time.Second)
		if got := f.acked.Load() - before; got < rate*10*8/10 || got > rate*10*115/100+rate {
			t.Errorf("%d messages in 10 s after the controller was back, want %d a second", got, rate)
		}
		f.stop()
	})
}

// TestCluster_QueuesOfANamespace makes queues until there are enough, many at once, deletes one, and makes another.
func TestCluster_QueuesOfANamespace(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.limit(core.NamespaceSpec{MaxQueues: 10}) // there is one
		admin := w.Client.Admin()
		var specs []core.QueueSpec
		for i := range 20 {
			specs = append(specs, core.QueueSpec{Path: fmt.Sprintf("/t/q%d", i)})
		}
		results, err := admin.CreateQueues(w.t.Context(), specs)
		w.ok(err)
		made := ""
		refused := 0
		for _, r := range results {
			switch {
			case r.Err == nil:
				made = r.Queue.Spec.Path
			case errors.Is(r.Err, client.ErrConflict):
				refused++
			default:
				t.Error(r.Err)
			}
		}
		if refused != 11 {
			t.Errorf("%d of 20 were refused, want 11", refused)
		}
		w.group("g", nil) // its dead letter queue is not counted
		n, err := admin.GetNamespace(w.t.Context(), "/t")
		w.ok(err)
		if n.Queues != 10 {
			t.Errorf("%d queues, want 10", n.Queues)
		}
		if _, err := admin.CreateQueue(w.t.Context(), core.QueueSpec{Path: "/else/q"}); err != nil {
			t.Errorf("a queue of another namespace: %v", err)
		}
		w.ok(admin.DeleteQueue(w.t.Context(), made))
		if _, err := admin.CreateQueue(w.t.Context(), core.QueueSpec{Path: "/t/again"}); err != nil {
			t.Errorf("a queue in place of a deleted one: %v", err)
		}
	})
}

// TestCluster_BacklogCap fills a queue that nobody consumes to its cap, or to that of its namespace: publishers wait
// there, go on when it is consumed, and as soon as there is no cap any more.
func TestCluster_BacklogCap(t *testing.T) {
	const cap, size = 256 << 10, 4 << 10
	for name, set := range map[string]func(w *world, cap int64){
		"queue": func(w *world, cap int64) {
			_, err := w.Client.Admin().UpdateQueue(w.t.Context(), core.QueueSpec{Path: queue, MaxBacklog: cap}, "max_backlog")
			w.ok(err)
		},
		"namespace": func(w *world, cap int64) {
			if cap > 0 {
				w.limit(core.NamespaceSpec{BacklogBytes: cap})
			} else {
				w.ok(w.Client.Admin().DeleteNamespace(w.t.Context(), "/t"))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			underrace.One(t, name == "queue")
			bubble(t, Options{Inputs: 2, Input: rollAt(50_000)}, func(w *world) { // small extents: some are sealed
				w.group("g", nil)
				set(w, cap)
				f := w.flood(queue, 3, size, 20*time.Millisecond)
				sleep(20 * time.Second)
				full := f.acked.Load() * size
				if full > cap*110/100 || full < cap*70/100 { // a host that begins has a part before it is told
					t.Errorf("%d bytes were stored, the cap is %d", full, cap)
				}
				con := w.consumer("g")
				w.eventually("twice the cap has passed", 20*time.Second, func() bool {
					if d := w.take(con, time.Second); d != nil {
						w.ok(d.Ack())
					}
					return f.acked.Load()*size > 2*cap
				})
				w.close(con)
				sleep(10 * time.Second)
				full = f.acked.Load() * size
				set(w, 0)
				sleep(4 * time.Second)
				if now := f.acked.Load() * size; now < full+cap {
					t.Errorf("%d bytes more without a cap", now-full)
				}
				f.stop()
				if n := f.failed.Load(); n > 0 {
					t.Errorf("%d messages failed: they had only to wait", n)
				}
			})
		})
	}
}
