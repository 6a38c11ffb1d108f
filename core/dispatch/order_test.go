package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

func TestShare_Wait(t *testing.T) {
	now := start
	g, s := newShare(t, core.GroupSpec{LockTimeout: time.Minute, MaxDeliveries: 5}, 3)
	want(t, "at first", take(g, 1, now), "1+1@1")
	if s.Begun(3) {
		t.Error("begun with two messages left")
	}
	s.Wait(true)
	if g.Ready() {
		t.Error("ready while it waits")
	}
	want(t, "while it waits", take(g, 10, now))
	if err := s.Nack(1, 1, 0, nil, 0, now); err != nil {
		t.Fatal(err)
	}
	save(s, now)
	want(t, "a retry while it waits", take(g, 10, now), "1+1@2")
	s.Wait(false)
	want(t, "afterwards", take(g, 10, now), "2+2@1")
	if !s.Begun(3) || s.Begun(4) {
		t.Errorf("begun up to 3: %t, up to 4: %t", s.Begun(3), s.Begun(4))
	}
}

// A message that a consumer gives back unread goes out before messages that were never handed out.
func TestShare_ChainedReturnsComeFirst(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 6)
	s.Wait(false)
	want(t, "first", take(g, 4, start), "1+4@1")
	if bad := s.Return(1, 2, 3, 1, start, nil); len(bad) > 0 {
		t.Fatal(bad)
	}
	want(t, "again", take(g, 4, start), "2+4@1")
}

// TestChain_Outage: in a chain what failed goes before what nobody was handed yet. While the breaker is open that
// leaves some of the probes to first attempts all the same: without those an outage would look like poison, and
// failures count.
func TestChain_Outage(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 500)
	s.Wait(false)
	w := newWorkers(t, g)
	w.until(start.Add(3*time.Hour), all)
	if len(w.dead) > 0 {
		t.Errorf("%d messages are dead letters after an outage, though %d of 500 were never delivered", len(w.dead), 500-len(w.given))
	}
	if n := len(w.given); n < 2*breakerFirsts || n > 150 {
		t.Errorf("%d messages were delivered for the first time, want some for each hour", n)
	}
	for seq := range core.Seq(len(w.given)) {
		if w.given[1+seq] == 0 {
			t.Errorf("seq %d was not delivered, and later ones were", 1+seq)
		}
	}
	w.until(start.Add(4*time.Hour), nothing)
	if n := g.Counters().Acked; n != 500 {
		t.Errorf("%d messages are acked after the outage, want 500", n)
	}
}
