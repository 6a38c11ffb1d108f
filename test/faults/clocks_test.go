package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/test/process"
)

// TestClusterClockAnHourWrong: the clocks of a store, an input host and an output host are an hour ahead. The
// controller finds it out within seconds, the store gets no extents, the input host goes by the clocks of the others,
// and delayed messages come when they are due.
func TestClusterClockAnHourWrong(t *testing.T) {
	long(t)
	const ahead, delay, n = time.Hour, 3 * time.Second, 200
	wrong := []int{storeNets[0], inputNets[0], outputNets[0]}
	c := process.StartCluster(t, process.Layout{Program: aheadProgram(t), Place: func(i int) process.Net {
		at := process.Net{Host: "127.0.0.1"}
		if slices.Contains(wrong, i) {
			at.Prefix = []string{"env", fmt.Sprintf("%s=%d", aheadEnv, int(ahead.Seconds()))}
		}
		return at
	}})
	s := c.Controller
	process.EventuallyWithin(t, 10*time.Second, "the wrong clocks are found out", func() bool {
		return strings.Count(s.Log(), "the clock of a host is wrong") >= len(wrong)
	})
	process.EventuallyWithin(t, 10*time.Second, "the input host finds out, too", func() bool {
		return strings.Contains(c.Inputs[0].Log(), "the clock of this host is wrong")
	})
	said := make(map[string]string)
	for _, h := range c.Hosts() {
		said[h.Addr] = h.State
	}
	for i, p := range c.All() {
		state := said[p.Addr]
		if is := strings.HasPrefix(state, "clock +1h0m") || strings.HasPrefix(state, "clock +59m59s"); is != slices.Contains(wrong, i) || !is && state != "up" {
			t.Errorf("the state of %s is %q", p.Name, state)
		}
	}
	s.Must("", "create", "queue", queue)
	s.Must("", "create", "group", queue, "g", "--start", "earliest")
	cl := s.Client()
	var mu sync.Mutex
	due, came := make(map[string]time.Time), make(map[string]time.Duration)
	ctx, cancel := context.WithCancel(t.Context())
	var consuming sync.WaitGroup
	stop := func() { cancel(); consuming.Wait() }
	t.Cleanup(stop)
	consuming.Go(func() {
		err := cl.Work(ctx, queue, "g", func(_ context.Context, d *client.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			came[string(d.Body)] = time.Since(due[string(d.Body)])
			return nil
		}, client.Concurrency(8))
		if err != nil {
			t.Errorf("work: %v", err)
		}
	})
	p, err := cl.Publisher(ctx, queue)
	if err != nil {
		t.Fatal(err)
	}
	var publishing sync.WaitGroup
	for i := range n {
		publishing.Add(1)
		body := fmt.Sprint(i)
		mu.Lock()
		due[body] = time.Now().Add(delay)
		mu.Unlock()
		err := p.PublishAsync(ctx, client.Message{Body: []byte(body), Delay: delay}, func(_ client.Receipt, err error) {
			defer publishing.Done()
			if err != nil {
				t.Errorf("publish %s: %v", body, err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	publishing.Wait()
	took := time.Since(began)
	process.EventuallyOr(t, process.Patience, func() bool { mu.Lock(); defer mu.Unlock(); return len(came) == n }, func() string {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprintf("%d messages have come, want %d", len(came), n)
	})
	stop()
	earliest, latest := time.Hour, -time.Hour
	for _, by := range came {
		earliest, latest = min(earliest, by), max(latest, by)
	}
	t.Logf("published within %s; the earliest came %s after its time, the latest %s", took, earliest, latest)
	const known = 2 * time.Second // an input host knows the time of the others to about a second
	if earliest < -known || latest > took+5*time.Second {
		t.Error("delayed messages come early, or late")
	}
	bad := hostAt(t, s, c.Stores[0].Addr)
	for _, e := range process.Decode[struct{ Replicas []string }](t, s.Ask("list", "extents", queue, "-o", "json")) {
		if slices.Contains(e.Replicas, bad) {
			t.Errorf("an extent is on %v, %s is wrong", e.Replicas, bad)
		}
	}
}

// hostAt is the id of the host at an address.
func hostAt(t *testing.T, s *process.Server, addr string) string {
	t.Helper()
	for _, h := range process.Decode[process.Host](t, s.Ask("list", "hosts", "-o", "json")) {
		if h.Addr == addr {
			return h.Host
		}
	}
	t.Fatalf("no host is at %s", addr)
	return ""
}
