package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// TestOutage_AtTheRetryLimit: the messages that were in flight when an outage began are more retries than the group may
// have, so no first delivery is made. Attempts of the outage do not count all the same, and the first success ends it.
func TestOutage_AtTheRetryLimit(t *testing.T) {
	if underrace.On {
		t.Skip("three hours of seconds: runs without the race detector")
	}
	g := NewGroup(core.GroupSpec{MaxDeliveries: 3, MaxDelayedRetries: 100, NoNackThrottle: true}.WithDefaults())
	s := g.AddShare(extent(1), State{}, start)
	if err := s.Offer(light(1, 5000), start); err != nil {
		t.Fatal(err)
	}
	firsts, dead := 0, 0
	step := func(now time.Time, settle func(r Run, seq core.Seq)) {
		g.Tick(now)
		g.CountedRetries()
		g.Retries(uint64(s.retriesHere()), 1, now)
		_, token := s.Checkpoint(nil, false, now)
		s.Saved(token)
		for _, r := range g.Take(1, Credit{Messages: 2000, Bytes: 1 << 20}, now, nil) {
			if r.Attempt == 1 {
				firsts += int(r.Count)
			}
			for i := range core.Seq(r.Count) {
				settle(r, r.Base+i)
			}
		}
		for _, x := range g.TakeTransfers(DeadLetterQueue, MaxOutstanding, nil) {
			dead++
			s.Transferred(x.Seq, now)
		}
		for _, x := range g.TakeTransfers(RetryQueue, MaxOutstanding, nil) { // it takes nothing
			s.TransferFailed(x.Seq, false, now, now)
		}
	}
	now := start
	for ; now.Sub(start) < 3*time.Hour; now = now.Add(time.Second) {
		step(now, func(r Run, seq core.Seq) {
			if err := s.Nack(seq, r.Attempt, 0, nil, 0, now); err != nil {
				t.Fatal(err)
			}
		})
	}
	if dead > 0 {
		t.Errorf("%d messages are dead letters after the outage", dead)
	}
	if probed := firsts - 2000; probed < 12 || probed > 60 {
		t.Errorf("%d messages were delivered for the first time as probes, want some for each hour", probed)
	}
	for end := now.Add(10 * time.Minute); now.Before(end) && s.outstanding() > 0; now = now.Add(time.Second) {
		step(now, func(r Run, seq core.Seq) { s.Ack(seq, 1, r.Attempt, now, nil) })
	}
	if s.outstanding() > 0 {
		t.Errorf("after the outage %+v", s.Depth())
	}
}
