package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestTransfers_WaitingIsBounded has a message leave and stay, again and again, behind one that waits for a checkpoint
// all the time: what waits takes no more room than what leaves.
func TestTransfers_WaitingIsBounded(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff}, 2)
	take(g, 2, start)
	due := start.Add(time.Hour).UnixNano()
	s.leave(1, s.table.get(1), RetryQueue, due)
	m := s.table.get(2)
	for range 10_000 {
		s.leave(2, m, RetryQueue, due)
		s.withdraw(2, m)
	}
	s.leave(2, m, RetryQueue, due)
	if n := s.transfers[RetryQueue].waiting.len(); n > 100 {
		t.Errorf("%d wait of 2 that leave", n)
	}
	if err := g.check(); err != nil {
		t.Error(err)
	}
	save(s, start)
	if some := g.TakeTransfers(RetryQueue, 9, nil); len(some) != 2 || some[0].Seq != 1 || some[1].Seq != 2 {
		t.Errorf("%+v leave", some)
	}
}
