package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

const queue = "/t/q"

// world is a cluster in a bubble with one queue, and what the tests do with it.
type world struct {
	*Cluster
	t *testing.T
}

// bubble runs f with a cluster, in virtual time and beside other tests: a bubble alone keeps little more than one
// processor busy.
func bubble(t *testing.T, o Options, f func(w *world)) {
	t.Helper()
	bubbleOf(t, o, core.QueueSpec{Path: queue}, f)
}

// beside has the tests that run beside others. One with a second bubble must not ask again.
var beside sync.Map

// bubbleOf is bubble with settings of the queue.
func bubbleOf(t *testing.T, o Options, spec core.QueueSpec, f func(w *world)) {
	t.Helper()
	if _, second := beside.LoadOrStore(t, true); !second {
		t.Parallel()
	}
	lonelyBubble(t, o, spec, f)
}

// lonelyBubble is bubbleOf for tests that measure the process: no other test runs meanwhile.
func lonelyBubble(t *testing.T, o Options, spec core.QueueSpec, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := Start(t, o)
		defer c.Close()
		w := &world{c, t}
		if _, err := c.Client.Admin().CreateQueue(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		f(w)
	})
}

func (w *world) group(name string, edit func(*core.GroupSpec)) {
	w.t.Helper()
	spec := core.GroupSpec{Queue: queue, Name: name, Start: core.Start{Mode: core.StartEarliest}}
	if edit != nil {
		edit(&spec)
	}
	if _, err := w.Client.Admin().CreateGroup(w.t.Context(), spec); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) publisher() *client.Publisher {
	w.t.Helper()
	p, err := w.Client.Publisher(w.t.Context(), queue)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// publish publishes bodies and waits for all acks.
func (w *world) publish(bodies ...string) {
	w.t.Helper()
	p := w.publisher()
	for _, b := range bodies {
		if err := p.PublishAsync(w.t.Context(), client.Message{Body: []byte(b)}, func(_ client.Receipt, err error) {
			if err != nil {
				w.t.Errorf("publish %s: %v", b, err)
			}
		}); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := p.Close(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func numbers(from, to int) []string {
	out := make([]string, 0, to-from+1)
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("%06d", i))
	}
	return out
}

func (w *world) consumer(group string, o ...client.ConsumerOption) *client.Consumer {
	w.t.Helper()
	c, err := w.Client.Consumer(w.t.Context(), queue, group, o...)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// take is the next delivery within the patience, nil when there is none.
func (w *world) take(c *client.Consumer, patience time.Duration) *client.Delivery {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for d, err := range c.Deliveries(ctx) {
		if err != nil {
			w.t.Fatal(err)
		}
		return d
	}
	return nil
}

// next is the next delivery, which must be that one.
func (w *world) next(c *client.Consumer, body string, attempt int) *client.Delivery {
	w.t.Helper()
	d := w.take(c, 2*time.Minute)
	if d == nil {
		w.t.Fatalf("nothing came, want %q as attempt %d", body, attempt)
	}
	if string(d.Body) != body || d.Attempt != attempt {
		w.t.Fatalf("got %q as attempt %d, want %q as attempt %d", d.Body, d.Attempt, body, attempt)
	}
	return d
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// collect acks what comes until n messages came and nothing more does for a while; it answers how often each came.
func (w *world) collect(c *client.Consumer, n int) map[string]int {
	w.t.Helper()
	got := make(map[string]int)
	for total := 0; ; total++ {
		patience := 3 * time.Minute
		if len(got) >= n {
			patience = 5 * time.Second
		}
		d := w.take(c, patience)
		if d == nil {
			return got
		}
		if got[string(d.Body)]++; total-len(got) < 3 && got[string(d.Body)] == 2 {
			w.t.Logf("%s again: attempt %d, %s, at %s", d.Body, d.Attempt, d.Receipt, time.Now().Format(time.TimeOnly))
		}
		w.ok(d.Ack())
	}
}

// all checks that every body came exactly once, or at least once.
func (w *world) all(got map[string]int, bodies []string, exactly bool) {
	w.t.Helper()
	missing, twice := 0, 0
	for _, b := range bodies {
		switch n := got[b]; {
		case n == 0:
			missing++
		case n > 1:
			twice++
		}
	}
	if missing > 0 || exactly && twice > 0 || len(got) > len(bodies) {
		w.t.Errorf("of %d messages %d are missing, %d came more than once, %d are known", len(bodies), missing, twice, len(got))
	}
}

func (w *world) close(c *client.Consumer) {
	w.t.Helper()
	w.ok(c.Close(w.t.Context()))
}

// load publishes numbered messages, many at once, until stop is called, which answers the acknowledged ones. Any error
// is one of the test.
func (w *world) load(workers int) (stop func() []string) {
	p := w.publisher()
	ctx, cancel := context.WithCancel(w.t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var acked []string
	for worker := range workers {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				body := fmt.Sprintf("%d-%06d", worker, i)
				if _, err := p.Publish(w.t.Context(), client.Message{Body: []byte(body)}); err != nil {
					w.t.Errorf("publish %s: %v", body, err)
					return
				}
				mu.Lock()
				acked = append(acked, body)
				mu.Unlock()
				time.Sleep(25 * time.Millisecond)
			}
		})
	}
	return func() []string {
		cancel()
		wg.Wait()
		w.ok(p.Close(w.t.Context()))
		slices.Sort(acked)
		return acked
	}
}

// eventually waits until f is true. It asks less often the longer it waits: most of what f calls costs more than the
// time in between.
func (w *world) eventually(what string, within time.Duration, f func() bool) {
	w.t.Helper()
	began := time.Now()
	for !f() {
		waited := time.Since(began)
		if waited > within {
			w.t.Fatalf("not within %s: %s", within, what)
		}
		time.Sleep(max(50*time.Millisecond, within/1000, waited/20))
	}
}

var errInjected = errors.New("injected")

// sleep lets the time of the bubble pass. Outside of one, whose clock begins in 2000, it would be a real wait.
func sleep(d time.Duration) {
	if time.Now().Year() > 2020 {
		panic("sleep outside of a synctest bubble")
	}
	time.Sleep(d)
}
