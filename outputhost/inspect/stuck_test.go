package inspect

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/core/stuck"
	"github.com/columbamq/columba/membership"
)

// failedShare is a share whose reads failed before: nothing has read it since, because nobody consumes.
type failedShare struct {
	heldShare
	stores []membership.Host
}

func (s failedShare) Stores(time.Time) []membership.Host { return s.stores }
func (s failedShare) View(time.Time) stuck.View          { return stuck.View{Unreadable: true} }
func (s failedShare) Failed(error)                       {}

// TestReadBlocked_FailedBefore: the reads of an extent failed before its stores had it. An extent that a store answers
// for now can be read; one whose store refuses the connection cannot.
func TestReadBlocked_FailedBefore(t *testing.T) {
	now := time.Now()
	h := newHarness(t)
	h.serve(map[core.HostID]*heldTo{"has": {last: 1}, "refuses": nil})
	rules := dispatch.NewGroup(core.GroupSpec{}.WithDefaults())
	for store, unreadable := range map[core.HostID]bool{"has": false, "refuses": true} {
		share := rules.AddShare(core.ExtentID{ID: core.NewID(now)}, dispatch.State{}, now)
		s := failedShare{heldShare{rules: share, last: 1}, []membership.Host{{ID: store, Address: string(store) + ":1"}}}
		b := &blocked{s: s, seq: 1}
		New(Config{}, h).readBlocked(t.Context(), &oneShare{}, []*blocked{b})
		if got := b.unreadable(s.View(now)); got != unreadable {
			t.Errorf("store %s: unreadable is %t, want %t", store, got, unreadable)
		}
	}
}
