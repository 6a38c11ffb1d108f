package controller

import (
	"maps"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
)

// others are the other controllers that there are, with the time since when they have been the same. Safe for
// concurrent use.
type others struct {
	mu struct {
		sync.Mutex
		runs map[core.RunID]core.HostID // in the membership
		same time.Time                  // since when they are these, and no other controller holds a session lease
	}
}

func newOthers(now time.Time) *others {
	o := &others{}
	o.mu.same = now
	return o
}

// see takes in the other controllers in the membership, and the other runs that hold session leases. A run that holds a
// lease and is not in the membership may change rows that nobody is asked about.
func (o *others) see(members map[core.RunID]core.HostID, leases []core.RunID, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	unshown := false
	for _, run := range leases {
		_, shown := members[run]
		unshown = unshown || !shown
	}
	if unshown || !maps.Equal(members, o.mu.runs) {
		o.mu.runs, o.mu.same = members, now
	}
}

// since is since when there have been the same controllers.
func (o *others) since() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.same
}

// otherRuns are the other controllers in the membership.
func (h *Host) otherRuns() map[core.RunID]core.HostID {
	self, out := h.deps.Members.Self(), make(map[core.RunID]core.HostID)
	for _, m := range h.deps.Members.Hosts("controller") {
		if m.Run != self.Run {
			out[m.Run] = m.ID
		}
	}
	return out
}
