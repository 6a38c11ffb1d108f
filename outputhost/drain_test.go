package outputhost

import (
	"testing"

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
	b.saver.save(t.Context(), b.saver.all(false), false)
	g.pump()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.rules.TransfersWait(dispatch.DeadLetterQueue) {
		t.Error("a host that drains has taken a dead letter to append it")
	}
}
