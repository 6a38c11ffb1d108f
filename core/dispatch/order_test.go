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
