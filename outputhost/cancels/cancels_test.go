package cancels

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/cancel"
	"github.com/columbamq/columba/core/dispatch"
)

// TestHold_Bounded: a share withholds some times what attempts have pending. A caller that names more fills no memory.
func TestHold_Bounded(t *testing.T) {
	now := time.UnixMilli(1_900_000_000_000)
	g := dispatch.NewGroup(core.GroupSpec{Queue: "/t/q", Name: "g"}.WithDefaults())
	s := g.AddTimers(core.ExtentID{ID: core.ID{1}}, dispatch.State{}, now)
	hold := func(seq core.Seq) string { return Hold(s, seq, now.Add(time.Hour), now, now) }
	for seq := range core.Seq(2 * mostHeld) {
		hold(seq + 1)
	}
	if n := s.Withheld(); n != mostHeld {
		t.Errorf("%d messages are withheld, want %d", n, mostHeld)
	}
	if got := hold(2 * mostHeld); got != string(cancel.Due) {
		t.Errorf("one more: %q, want that it is too late", got)
	}
}
