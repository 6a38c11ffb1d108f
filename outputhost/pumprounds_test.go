package outputhost

import (
	"sync/atomic"
	"testing"
	"time"
)

// TestPump_HoldsNoCaller: events of a group come in each round of its pump, as from many consumers that settle one
// message at a time. The caller of the pump goes on nevertheless: one goroutine each serves the deadlines, the
// checkpoints and the leases of all groups. The pump goes on until no event comes.
func TestPump_HoldsNoCaller(t *testing.T) {
	b := newHarness(t)
	_, a := b.group()
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	g, _ := b.taken(a, 10)
	const all = 1000
	var rounds atomic.Int64
	returned, quiet := make(chan struct{}), make(chan struct{})
	b.deps.Now = func() time.Time {
		switch n := rounds.Add(1); {
		case n < all: // of a round, which has the mutex
			g.mu.again = true
		case n == all:
			select {
			case <-returned:
			case <-time.After(10 * time.Second):
				t.Error("the caller goes round with the group")
			}
			close(quiet)
		}
		return time.Now()
	}
	g.pump()
	close(returned)
	<-quiet
}
