package inputhost

import (
	"time"

	"github.com/columbamq/columba/core"
)

const (
	// punctual is how far apart looks are that are on time. A host that does not look on time may not read
	// acknowledgements on time either.
	punctual = tickEvery + tickEvery/2
	// stuckEvery is the shortest time between two stores that are left because they are stuck. If it was not the store,
	// but the machine, the deadline has to do for the others.
	stuckEvery = 10 * time.Second
)

// noteStuck counts for how long a store has acknowledged nothing, of any extent, while another replica has what it
// owes: newer batches as well, or the store does not even give a sign of life. Only looks that were on time count, and
// one that was not begins anew.
func (h *storeHealth) noteStuck(step time.Duration, l lag, patience time.Duration) {
	owes := l.overtaken
	if l.silent >= patience {
		owes = max(owes, l.behind)
	}
	if owes == 0 || l.slowest > 0 || step > punctual {
		h.stuck = 0
		return
	}
	h.stuck = min(h.stuck+step, owes)
}

// stuckLocked names the store that is stuck, if it is the only one that does not do well: else it may be the load, the
// machine or the network of this host.
func (s *stores) stuckLocked(now time.Time) core.HostID {
	if now.Sub(s.mu.stuck) < stuckEvery {
		return ""
	}
	var stuck core.HostID
	for id, h := range s.mu.known {
		switch {
		case h.stuck >= s.limits.stuck && !now.Before(h.evicted) && stuck == "":
			stuck = id
		case !h.slowSince.IsZero():
			return ""
		}
	}
	return stuck
}
