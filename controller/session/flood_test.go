package session_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
)

// TestSession_AFloodOfQuestions: thousands of callers ask a controller at once, over and over. Its own looks, and the
// questions of another controller, are not behind all of theirs.
func TestSession_AFloodOfQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, faulty.New(memory.New(), faulty.Faults{Delay: 10 * time.Millisecond}))
		ready := make(chan struct{})
		a := w.startWhen("a", 1, ready)
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for i := range 3000 {
			callers.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond / 2)
				for ctx.Err() == nil {
					_, _ = a.Acknowledge(ctx, core.RunID{ID: w.keys[0]}, 0)
				}
			})
		}
		time.Sleep(2 * time.Second)
		close(ready)
		within(t, "it is responsible for all", 10*time.Second, w.settled)
		b := w.start("b", 1)
		within(t, "each has its part", 20*time.Second, func() bool { return w.settled() && w.of(b) > 0 })
		cancel()
		callers.Wait()
		a.end()
		b.end()
	})
}
