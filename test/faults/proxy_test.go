package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/test/process"
)

// proxied is a cluster of which some processes are reached through proxies only.
func proxied(t *testing.T, which func(i int) bool) (*process.Cluster, []*process.Proxy) {
	t.Helper()
	var proxies []*process.Proxy
	c := process.StartCluster(t, process.Layout{Stores: 3, Inputs: 2, Outputs: 2, Front: func(i int, addr string) string {
		if !which(i) {
			return addr
		}
		p := process.NewProxy(t, addr)
		proxies = append(proxies, p)
		return p.Addr
	}})
	return c, proxies
}

// jobRun is one call of a handler.
type jobRun struct {
	attempt int
	began   time.Time
}

// jobs counts how often the handlers of a group are run, by job.
type jobs struct {
	takes time.Duration
	mu    sync.Mutex
	runs  map[string][]jobRun
	done  int
	lost  int // handlers whose context ended
}

func (j *jobs) handle(ctx context.Context, d *client.Delivery) error {
	j.mu.Lock()
	j.runs[string(d.Body)] = append(j.runs[string(d.Body)], jobRun{d.Attempt, time.Now()})
	j.mu.Unlock()
	select {
	case <-time.After(j.takes):
	case <-ctx.Done():
		j.mu.Lock()
		defer j.mu.Unlock()
		j.lost++
		return ctx.Err()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done++
	return nil
}

func (j *jobs) finished() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.done
}

// TestJobsOverResetsAndARollingRestart: all sockets between clients and servers, and between servers, are reset every
// now and then, and each output host is stopped and started again, while handlers work on jobs that take longer than
// either. Each job is run once. A reset may lose a delivery on its way to a client, and its attempt counts: so a later
// attempt may be the one that is run, but only after the locks of those before it have ended.
func TestJobsOverResetsAndARollingRestart(t *testing.T) {
	takes, every, rounds := 2*time.Second, time.Second, 2
	if os.Getenv(longEnv) != "" {
		takes, every, rounds = 30*time.Second, 5*time.Second, 3
	}
	const workers, each, lock = 2, 8, 15 * time.Second
	c, proxies := proxied(t, func(int) bool { return true })
	s := c.Controller
	s.Must("", "create", "queue", queue)
	s.Must("", "create", "group", queue, "work", "--start", "earliest", "--lock-timeout", lock.String())
	n, published := rounds*workers*each, time.Now()
	s.Must(lines(n), "publish", queue)
	j := &jobs{takes: takes, runs: make(map[string][]jobRun)}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	stop := func() { cancel(); work.Wait() }
	t.Cleanup(stop)
	for range workers {
		cl := s.Client()
		work.Go(func() {
			if err := cl.Work(ctx, queue, "work", j.handle, client.Concurrency(each)); err != nil {
				t.Errorf("work: %v", err)
			}
		})
	}
	process.Eventually(t, "all handlers run", func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return len(j.runs) >= workers*each
	})
	began := time.Now()
	resetting, still := context.WithCancel(ctx)
	work.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-resetting.Done():
				return
			case <-tick.C:
				for _, p := range proxies {
					p.ResetAll()
				}
			}
		}
	})
	for _, o := range c.Outputs {
		if code := o.Stop(); code != 0 {
			t.Errorf("%s ended with %d", o.Name, code)
		}
		o.Start()
		c.AwaitHosts()
	}
	process.EventuallyWithin(t, time.Duration(2*rounds)*takes+process.Patience, "all jobs are done", func() bool { return j.finished() >= n })
	took := time.Since(began)
	still()
	left := emptyRun(t, s, "work")
	process.Eventually(t, "the server counts nothing left", func() bool { undone, dead := left.undone("work"); return undone+dead == 0 })
	stop()
	resets := 0
	for _, p := range proxies {
		resets += p.Resets()
	}
	for body, runs := range j.runs {
		for _, r := range runs {
			if late := r.began.Sub(published); late < time.Duration(r.attempt-1)*lock {
				t.Errorf("job %q was run as attempt %d after %s: no lock has ended yet", body, r.attempt, late)
			} else if r.attempt > 1 {
				t.Logf("job %q was run as attempt %d: a delivery of it was lost on its way", body, r.attempt)
			}
		}
		if len(runs) != 1 {
			t.Errorf("job %q was run %d times, want once", body, len(runs))
		}
	}
	if len(j.runs) != n || j.lost > 0 {
		t.Errorf("%d jobs were run, want %d; %d lost their locks", len(j.runs), n, j.lost)
	}
	t.Logf("%d jobs of %s over %d resets and a restart of %d output hosts, in %s", n, takes, resets, len(c.Outputs), took.Round(100*time.Millisecond))
}

// TestResetsMakeNoSealStorm: of all pieces of data to and from stores one of 200 resets its connection, and every 300
// ms all connections of one store are reset, under load on three queues. A queue whose extents fail one after another
// opens the next one later: each would cost rows, files and a seal. Without these pauses they make about 500 extents.
func TestResetsMakeNoSealStorm(t *testing.T) {
	const lasts, every, rate, most = 15 * time.Second, 300 * time.Millisecond, 200, 30
	c, proxies := proxied(t, func(i int) bool { return slices.Contains(storeNets, i) })
	s := c.Controller
	ctx, cancel := context.WithCancel(t.Context())
	var publishing sync.WaitGroup
	stop := func() { cancel(); publishing.Wait() }
	t.Cleanup(stop)
	var mu sync.Mutex
	acked, failed := 0, 0
	for q, flags := range map[string][]string{"/t/a": nil, "/t/b": nil, "/t/cp": {"--consistency", "cp"}} {
		s.Must("", append([]string{"create", "queue", q}, flags...)...)
		s.Must("", "create", "group", q, "g", "--start", "earliest")
		p, err := s.Client().Publisher(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		publishing.Go(func() {
			tick := time.NewTicker(time.Second / time.Duration(rate))
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				select {
				case <-ctx.Done():
				case <-tick.C:
					_ = p.PublishAsync(ctx, client.Message{Body: fmt.Append(nil, n, rand.Int())}, func(_ client.Receipt, err error) {
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							failed++
						} else {
							acked++
						}
					})
				}
			}
			end, cancel := context.WithTimeout(context.Background(), process.Patience)
			defer cancel()
			_ = p.Close(end)
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return acked }
	process.Eventually(t, "publishing", func() bool { return count() > 3*rate/2 })
	before, from := s.Metric("columba_controller_extents_created_total"), count()
	for _, p := range proxies {
		p.ResetOneOf(200)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := range int(lasts / every) {
		<-tick.C
		proxies[i%len(proxies)].ResetAll()
	}
	resets := 0
	for _, p := range proxies {
		p.ResetOneOf(0)
		resets += p.Resets()
	}
	made := s.Metric("columba_controller_extents_created_total") - before
	during := count() - from
	after := count()
	process.EventuallyWithin(t, 10*time.Second, "publishing goes on", func() bool { return count() > after+rate })
	stop()
	t.Logf("%d resets in %s: %.0f extents were made, %d messages acknowledged meanwhile, %d refused or unknown", resets, lasts, made, during, failed)
	if resets < int(lasts/every)/2 {
		t.Errorf("%d connections were reset, want one in each turn: the test proves nothing", resets)
	}
	if made > most {
		t.Errorf("%.0f extents were made in %s of %d resets, want %d at most", made, lasts, resets, most)
	}
}
