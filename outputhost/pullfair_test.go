package outputhost

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
)

// pullable is a group with n ready messages in one share, which pulls can read.
func (b *harness) pullable(n int) *group {
	b.t.Helper()
	g, s := b.small(1)
	g.mu.Lock()
	s.rules.AckProven(1, b.deps.Now())
	s.last, s.l = core.Seq(n+1), core.Seq(n+1)
	g.mu.Unlock()
	all := make([][]byte, n)
	for i := range all {
		all[i] = recordOf(b.t, "x")
	}
	b.offer(g, s, all...)
	return g
}

// TestFair_PullsAreOneConsumer: pulls that take all they get, and settle nothing, leave something for the consumer on a
// stream, and a consumer on a stream leaves something for pulls. A pull waits for what it may not hold yet.
func TestFair_PullsAreOneConsumer(t *testing.T) {
	const part = dispatch.MaxOutstanding / 3 // of a consumer and the pulls
	pull := func(t *testing.T, g *group, most int, wait time.Duration) int {
		t.Helper()
		messages, err := g.pull(t.Context(), most, wait)
		if err != nil {
			t.Fatal(err)
		}
		return len(messages)
	}
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g := b.pullable(dispatch.MaxOutstanding)
		conn := b.connect()
		conn.read()
		modest := conn.consume(g)
		modest.grants(g, 0)
		pulled := 0
		for range 5 {
			pulled += pull(t, g, maxPull, 0)
		}
		if pulled != part {
			t.Errorf("pulls hold %d messages, want a third, %d", pulled, part)
		}
		g.mu.Lock()
		if takers := g.takersLocked(b.deps.Now()); takers.Credit != 0 {
			t.Errorf("%+v would take a message", takers)
		}
		g.mu.Unlock()
		if held := modest.grant(g, 1, 1<<20); held != 1 {
			t.Errorf("the consumer got %d messages, want 1", held)
		}
		modest.grants(g, 0)
		ctx, cancel := context.WithTimeout(t.Context(), maxPullWait)
		defer cancel()
		time.AfterFunc(time.Second, func() {
			g.mu.Lock()
			for s := range g.mu.shares {
				g.mu.shares[s].rules.Ack(2, 1, 1, b.deps.Now(), nil)
			}
			g.mu.Unlock()
			g.pump()
		})
		if messages, err := g.pull(ctx, 1, maxPullWait); len(messages) != 1 || err != nil {
			t.Errorf("after an ack a pull got %d messages, %v; want 1", len(messages), err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g := b.pullable(dispatch.MaxOutstanding)
		conn := b.connect()
		conn.read()
		greedy := conn.consume(g)
		greedy.grants(g, 0)
		pull(t, g, 1, 0)
		if held := greedy.grant(g, 1<<20, g.h.cfg.MaxCredit); held != part {
			t.Errorf("the consumer holds %d messages beside pulls, want a third, %d", held, part)
		}
		if n := pull(t, g, maxPull, 0); n != maxPull {
			t.Errorf("a pull got %d messages, want %d", n, maxPull)
		}
		g.mu.Lock()
		g.mu.pulled -= pullAgain // nobody pulls any more
		g.mu.Unlock()
		g.pump()
		g.mu.Lock()
		defer g.mu.Unlock()
		if greedy.held < dispatch.MaxOutstanding-maxPull-1 {
			t.Errorf("alone the consumer holds %d messages", greedy.held)
		}
	})
}
