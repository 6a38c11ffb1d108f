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

// TestTransfers_PauseAfterAFailure: the clock of the host went back, so the group is told to try a transfer again at a
// time that has passed for the group. Else the host would try it without a pause until its clock has caught up.
func TestTransfers_PauseAfterAFailure(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 1)
	take(g, 1, start)
	if err := s.Reject(1, 1, nil, start); err != nil {
		t.Fatal(err)
	}
	save(s, start)
	back := start.Add(-time.Minute)
	for tries := range 3 {
		if some := g.TakeTransfers(DeadLetterQueue, 9, nil); len(some) != 1 {
			t.Fatalf("%d transfers at try %d", len(some), tries)
		}
		s.TransferFailed(1, false, back.Add(time.Second), back)
		if g.Tick(back); g.TransfersWait(DeadLetterQueue) {
			t.Fatal("the transfer is tried again at once")
		}
		at, ok := g.NextDeadline()
		if !ok {
			t.Fatal("there is no deadline")
		}
		g.Tick(at)
	}
}
