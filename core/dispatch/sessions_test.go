package dispatch

import (
	"testing"

	"github.com/columbamq/columba/core"
)

// TestPullSession_OneToPolicies: each pull nacks the only message that it gets, and all together are slowed down as one
// session. A message is of the one pull that has it.
func TestPullSession_OneToPolicies(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff}, 100)
	pulls := uint32(1<<31 - 5) // they come round
	pull := func() (SessionID, []Run) {
		pulls++
		id := PullSession(pulls)
		return id, g.Take(id, Credit{Messages: 1, Bytes: 1 << 20}, start, nil)
	}
	for range freeNacks + throttledAtOnce + 1 {
		id, runs := pull()
		if len(runs) != 1 {
			t.Fatalf("pull %d got %v", id, runs)
		}
		holder, locked := s.Holder(runs[0].Base)
		if !locked || holder != id || holder == EarlierSession || s.Standing(runs[0].Base).Session != 0 || g.InFlightOf(id) != 1 {
			t.Fatalf("pull %d holds what %d has: %+v, %d in flight", id, holder, s.Standing(runs[0].Base), g.InFlightOf(id))
		}
		if err := s.Nack(runs[0].Base, 1, 0, nil, 0, start); err != nil {
			t.Fatal(err)
		}
	}
	if id, runs := pull(); runs != nil || !g.Throttled(id) || !g.Throttled(0) || g.Throttled(1) || len(g.sessions.of) != 1 {
		t.Errorf("pull %d got %v, throttled %v and %v, another session %v; %d sessions are known", id, runs, g.Throttled(id), g.Throttled(0), g.Throttled(1), len(g.sessions.of))
	}
}
