package outputhost

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core/dispatch"
)

// TestPump_TransfersNothingWhileItDrains: the last checkpoint of a host that ends says of a dead letter that it is here
// only, so the host must not append it after that.
func TestPump_TransfersNothingWhileItDrains(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(10, 6)
	g.mu.Lock()
	err := s.rules.Reject(1, 1, nil, b.deps.Now())
	g.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	b.draining.Store(true)
	b.saver.note(g, saveNow)
	b.saver.save(t.Context(), false)
	g.pump()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.rules.TransfersWait(dispatch.DeadLetterQueue) {
		t.Error("a host that drains has taken a dead letter to append it")
	}
}

// TestRun_AwaitsTransfers: a host that ends waits for the outcomes of appends, so that its last checkpoint has them. It
// does not wait for long.
func TestRun_AwaitsTransfers(t *testing.T) {
	for _, answered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newHarness(t)
			g, s := b.share(10, 6)
			g.mu.Lock()
			if err := s.rules.Reject(1, 1, nil, b.deps.Now()); err != nil {
				t.Fatal(err)
			}
			_, token := s.rules.Checkpoint(nil, false, b.deps.Now())
			s.rules.Saved(token)
			some := g.mu.rules.TakeTransfers(dispatch.DeadLetterQueue, 9, nil)
			g.mu.Unlock()
			if len(some) != 1 {
				t.Fatalf("%d leave, want one", len(some))
			}
			b.draining.Store(true)
			began, ended := time.Now(), make(chan time.Duration, 1)
			var wait sync.WaitGroup
			wait.Go(func() {
				b.awaitTransfers(t.Context())
				ended <- time.Since(began)
			})
			synctest.Wait()
			if len(ended) > 0 {
				t.Error("the host does not wait for the outcome of an append")
			}
			want := transfersWait
			if answered {
				l := leaver{g}
				l.Settle(some[0], nil, time.Time{}, b.deps.Now())
				l.Pump()
				want = 0
			}
			wait.Wait()
			if took := <-ended; took != want {
				t.Errorf("answered %v: the host waits for %s, want %s", answered, took, want)
			}
		})
	}
}
