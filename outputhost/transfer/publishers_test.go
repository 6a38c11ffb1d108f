package transfer

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core/dispatch"
)

// TestPublishers_CloseWithoutAnotherTransfer: the publisher of a queue does not outlast its use for long, also if
// nothing is transferred any more.
func TestPublishers_CloseWithoutAnotherTransfer(t *testing.T) {
	b := newHarness(t)
	b.send(b.message(dispatch.DeadLetterQueue, 1, false))
	later := func(d time.Duration) {
		b.mu.Lock()
		b.mu.now = b.mu.now.Add(d)
		b.mu.Unlock()
		b.mover.CloseIdle()
	}
	open := func() int {
		b.mover.mu.Lock()
		defer b.mover.mu.Unlock()
		return len(b.mover.open)
	}
	if later(idle); open() != 1 {
		t.Errorf("%d publishers after %s, want 1", open(), idle)
	}
	if later(time.Second); open() != 0 {
		t.Errorf("%d publishers a second later, want none", open())
	}
	if err := b.send(b.message(dispatch.DeadLetterQueue, 2, false))[2]; err != nil || open() != 1 {
		t.Errorf("the next transfer: %v, %d publishers", err, open())
	}
}
