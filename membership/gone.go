package membership

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// Gone is a host that was a member within RememberGone, and is none now.
type Gone struct {
	Host
	Since time.Time // when this process noticed it
	Left  bool      // the host stopped in good order; otherwise it does not answer
}

// RememberGone is how long a host that is gone is remembered.
const RememberGone = time.Hour

// maxGone bounds how many hosts that are gone are remembered; the oldest are forgotten first.
const maxGone = 1000

// Departure says why a host is no member any more.
type Departure int

// Departures.
const (
	Down    Departure = iota // it does not answer
	Left                     // it stopped in good order
	Foreign                  // it never was a member of this cluster: it is not remembered
)

// remember is the hosts that are gone after the members changed from old to hosts.
func remember(gone map[core.HostID]Gone, old, hosts []Host, now time.Time, why func(Host) Departure) {
	here := make(map[core.HostID]bool, len(hosts))
	for _, h := range hosts {
		here[h.ID] = true
		delete(gone, h.ID)
	}
	for _, h := range old {
		if here[h.ID] {
			continue
		}
		if d := why(h); d != Foreign {
			gone[h.ID] = Gone{Host: h, Since: now, Left: d == Left}
		}
	}
	maps.DeleteFunc(gone, func(_ core.HostID, g Gone) bool { return now.Sub(g.Since) >= RememberGone })
	if len(gone) > maxGone {
		oldest := slices.SortedFunc(maps.Values(gone), func(a, b Gone) int { return a.Since.Compare(b.Since) })
		for _, g := range oldest[:len(oldest)-maxGone] {
			delete(gone, g.ID)
		}
	}
}

// recent are the hosts of gone that are remembered at a time, sorted by id.
func recent(gone map[core.HostID]Gone, now time.Time) []Gone {
	var out []Gone
	for _, g := range gone {
		if now.Sub(g.Since) < RememberGone {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b Gone) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
