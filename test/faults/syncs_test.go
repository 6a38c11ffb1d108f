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
	"github.com/columbamq/columba/tools/verify"
)

// TestSyncsFail: the nth fdatasync of a store fails, under load, for n from 1 on. The store takes that for what it is,
// and opens its log anew.
func TestSyncsFail(t *testing.T) {
	long(t)
	c := process.StartCluster(t, process.Layout{})
	l := newLoad(t, c.Controller, 300)
	l.start(2, 2)
	changed, failures := 0, 0.0
	for n := 1; n <= 20; n++ {
		l.goesOn(200)
		store := c.Stores[n%len(c.Stores)]
		was := store.Metric("columba_storehost_log_failures_total")
		began := time.Now()
		i := store.Inject(fmt.Sprintf("fdatasync:error=EIO:when=%d", n))
		process.Eventually(t, "a sync fails", func() bool { return i.Count() > 0 })
		i.End()
		changed += i.Count()
		c.AwaitHosts()
		l.away(store.Name, began)
		failures += store.Metric("columba_storehost_log_failures_total") - was
	}
	l.goesOn(500)
	report := l.finish()
	if failures < 15 { // some may hit a sync of which no message depends
		t.Errorf("%d syncs failed, and the logs of the stores %v times", changed, failures)
	}
	l.row(fmt.Sprintf("%d syncs of stores failed", changed), fmt.Sprintf("logs failed %v times, lost %d", failures, len(report.Of(verify.Lost))))
}

// TestSlowSyncs: while each sync of one of four stores takes 300 ms more, publishers wait no longer than before after a
// while: extents on that store are sealed, and others take over.
func TestSlowSyncs(t *testing.T) {
	long(t)
	c := process.StartCluster(t, process.Layout{Stores: 4, Inputs: 1, Outputs: 1})
	s := c.Controller
	s.Must("", "create", "queue", queue)
	m := newMeter(t, s.Client(), 500)
	m.window(3 * time.Second) // warms up
	before := m.window(5 * time.Second)
	for i := range c.Stores {
		store := c.Stores[i]
		if store.Metric("columba_storehost_append_streams") == 0 {
			continue
		}
		slow := store.Inject("fdatasync:delay_enter=300000")
		began := time.Now()
		worst := time.Duration(0)
		for {
			p99 := m.window(2 * time.Second)
			worst = max(worst, p99)
			if p99 <= 2*before {
				break
			}
			if time.Since(began) > 20*time.Second {
				t.Errorf("20 s after the syncs of %s became slow p99 is %s, before %s", store.Name, p99, before)
				break
			}
		}
		took := time.Since(began)
		if slow.Count() == 0 {
			t.Errorf("no sync of %s was slow", store.Name)
		}
		slow.End()
		t.Logf("each sync of a store 300 ms slower: publish p99 %s before, %s at worst, as before after %s", before, worst, took.Round(time.Second))
		break
	}
	m.end()
}

// meter publishes at a steady rate and measures how long that takes.
type meter struct {
	stop context.CancelFunc
	done sync.WaitGroup
	mu   sync.Mutex
	took []time.Duration // since the last window
}

func newMeter(t *testing.T, c *client.Client, rate int) *meter {
	t.Helper()
	p, err := c.Publisher(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m := &meter{stop: cancel}
	m.done.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		began, sent := time.Now(), 0
		body := []byte(strings.Repeat("x", 1000))
		for {
			select {
			case <-ctx.Done():
				end, cancel := context.WithTimeout(context.Background(), process.Patience)
				defer cancel()
				if err := p.Close(end); err != nil {
					t.Error(err)
				}
				return
			case <-tick.C:
			}
			for ; sent < int(time.Since(began).Seconds()*float64(rate)); sent++ {
				due := began.Add(time.Duration(sent) * time.Second / time.Duration(rate)) // of the schedule, so that a late start counts
				told := func(_ client.Receipt, err error) {
					if err != nil {
						t.Error(err)
						return
					}
					m.mu.Lock()
					defer m.mu.Unlock()
					m.took = append(m.took, time.Since(due))
				}
				if err := p.PublishAsync(ctx, client.Message{Body: body}, told); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		}
	})
	return m
}

// window is the p99 of what is answered from now on for so long.
func (m *meter) window(long time.Duration) time.Duration {
	m.mu.Lock()
	m.took = nil
	m.mu.Unlock()
	<-time.After(long)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.took) == 0 {
		return long
	}
	slices.Sort(m.took)
	return m.took[(len(m.took)*99-1)/100]
}

func (m *meter) end() {
	m.stop()
	m.done.Wait()
}
