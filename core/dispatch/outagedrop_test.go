package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestOutage_DropsNothing: a group that drops loses no message to an outage, also not those that had their last attempt
// before the breaker opened.
func TestOutage_DropsNothing(t *testing.T) {
	for _, most := range []int{1, 2, 3, 10} {
		for _, atOnce := range []int{1, 10} {
			g, s := newShare(t, core.GroupSpec{MaxDeliveries: most, Exhausted: core.ExhaustedDrop}, 1000)
			w := newWorkers(t, g)
			for range 30 {
				w.work(atOnce, all)
			}
			w.until(start.Add(time.Minute), all)
			w.until(start.Add(2*time.Hour), tenth)
			if n := g.Counters().Dropped; n != 100 || !s.Done(1000) {
				t.Errorf("max %d, %d at once: %d messages are dropped, want the 100 bad ones; %+v is left", most, atOnce, n, g.Depth())
			}
			for seq, given := range w.given {
				if tenth(seq) && given < most {
					t.Errorf("max %d: seq %d was dropped after %d deliveries", most, seq, given)
				}
			}
		}
	}
}

// TestOutage_DropsSoon: what only seemed to be an outage is dropped after the patience of a dead letter, or is acked
// late.
func TestOutage_DropsSoon(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 1, Exhausted: core.ExhaustedDrop}, 3)
	for _, r := range g.Take(1, Credit{Messages: 3, Bytes: 1 << 20}, start, nil) {
		for i := range core.Seq(r.Count) {
			if err := s.Nack(r.Base+i, 1, 0, nil, 0, start); err != nil {
				t.Fatal(err)
			}
		}
	}
	if bad := s.Ack(2, 1, 1, start, nil); bad != nil || g.Counters().Dropped != 0 {
		t.Fatalf("a late ack is refused: %v; %d dropped", bad, g.Counters().Dropped)
	}
	end := start.Add(routes[DeadLetterQueue].patience)
	at, ok := g.NextDeadline()
	if !ok || !at.Equal(end) {
		t.Fatalf("the next deadline is %s, %v; want %s", at, ok, end)
	}
	g.Tick(end)
	if n := g.Counters().Dropped; n != 2 || !s.Done(3) {
		t.Errorf("%d are dropped, want 2; %+v", n, g.Depth())
	}
}

// TestDrops_HoldUpNothing: messages of which every fifth is exhausted at once, while others succeed, do not fill their
// share.
func TestDrops_HoldUpNothing(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 1, Exhausted: core.ExhaustedDrop, NoNackThrottle: true}, 20_000)
	now := start
	for range 200 {
		for _, r := range g.Take(1, Credit{Messages: 100, Bytes: 1 << 20}, now, nil) {
			for i := range core.Seq(r.Count) {
				if seq := r.Base + i; seq%5 > 0 {
					s.Ack(seq, 1, r.Attempt, now, nil)
				} else if err := s.Nack(seq, r.Attempt, 0, nil, 0, now); err != nil {
					t.Fatal(err)
				}
			}
		}
		now = now.Add(5 * time.Millisecond)
		g.Tick(now)
		if n := s.of(delayed); n > 20 {
			t.Fatalf("%d exhausted messages are kept while others succeed, want those of one round at most", n)
		}
	}
	if n := g.Counters().Dropped; n < 3_900 {
		t.Errorf("%d messages are dropped, want all of a fifth but the last ones", n)
	}
}
