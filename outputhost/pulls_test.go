package outputhost

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// emptyGroup is one whose only share is read, and of which nothing is left to be pulled.
func emptyGroup(t *testing.T) (*harness, *group, *share) {
	t.Helper()
	b := newHarness(t)
	g := b.pullable(1)
	if messages, err := g.pull(t.Context(), 1, 0); len(messages) != 1 || err != nil {
		t.Fatalf("%d messages, %v", len(messages), err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return b, g, g.orderedLocked()[0]
}

// TestPulls_AMessageWakesOne: a thousand pulls wait for one message each, as of workers over HTTP. A message has one of
// them look, and not all, and several messages that come together are taken at once.
func TestPulls_AMessageWakesOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, s := emptyGroup(t)
		const all = 1000
		var looks, got atomic.Int64
		b.deps.Now = func() time.Time {
			looks.Add(1)
			return time.Now()
		}
		var pulls sync.WaitGroup
		for range all {
			pulls.Go(func() {
				messages, err := g.pull(t.Context(), 1, maxPullWait)
				if err != nil {
					t.Error(err)
				}
				got.Add(int64(len(messages)))
			})
		}
		synctest.Wait()
		for _, n := range []int{1, 1, 5, all - 7} {
			looks.Store(0)
			got.Store(0)
			records := make([][]byte, n)
			for i := range records {
				records[i] = recordOf(t, "x")
			}
			b.offer(g, s, records...)
			g.pump()
			synctest.Wait()
			if got.Load() != int64(n) || looks.Load() > int64(20*n) {
				t.Errorf("%d messages: pulls took %d, and looked %d times", n, got.Load(), looks.Load())
			}
		}
		pulls.Wait()
	})
}

// TestPulls_OneThatEndsPassesItsTurnOn: a pull is woken as its caller gives up. Another one takes the message at once.
func TestPulls_OneThatEndsPassesItsTurnOn(t *testing.T) {
	for range 50 { // which of two events a pull sees first is chance
		synctest.Test(t, func(t *testing.T) {
			b, g, s := emptyGroup(t)
			ctx, cancel := context.WithCancel(t.Context())
			var pulls sync.WaitGroup
			var got atomic.Int64
			pull := func(ctx context.Context) {
				messages, err := g.pull(ctx, 1, maxPullWait)
				if err != nil {
					t.Error(err)
				}
				got.Add(int64(len(messages)))
			}
			pulls.Go(func() { pull(ctx) })
			synctest.Wait()
			pulls.Go(func() { pull(t.Context()) })
			synctest.Wait()
			b.offer(g, s, recordOf(t, "x"))
			cancel()
			g.pump()
			synctest.Wait()
			if got.Load() != 1 {
				t.Errorf("pulls took %d messages, want the one", got.Load())
			}
			b.offer(g, s, recordOf(t, "x"))
			g.pump()
			pulls.Wait()
		})
	}
}
