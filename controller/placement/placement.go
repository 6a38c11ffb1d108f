// Package placement owns the choice of hosts for new work, and the check whether an extent has the wanted copies. It is
// pure: its input is the state of the hosts.
package placement

import (
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// Tier is how gladly a store is chosen; a lower one is used up first.
type Tier uint8

const (
	Good    Tier = iota
	Avoided      // slow or broken for whoever asks, a moment ago
	Full         // little space is left
	Skewed       // its clock is wrong
	tiers
)

// Candidate is a host that could take work.
type Candidate struct {
	ID     core.HostID
	Zone   string
	Tier   Tier
	Weight float64 // relative to the others'; 0 is 1
}

func id(c Candidate) core.HostID { return c.ID }

func weight(c Candidate) float64 {
	if c.Weight <= 0 {
		return 1
	}
	return c.Weight
}

// Owner is the candidate that rendezvous hashing gives the key to. ok is false without candidates.
func Owner(key string, from []Candidate) (owner core.HostID, ok bool) {
	if len(from) == 0 {
		return "", false
	}
	return core.Rank(key, from, id)[0].ID, true
}

// Need is how many hosts are looked for.
type Need struct {
	Want  int
	Min   int      // tiers behind the best there is are used to reach this many only
	Zones []string // of the hosts that have the work already
}

// Replicas picks up to need.Want distinct hosts for the key, spread over as many zones as there are; within a zone
// those of more weight win more keys.
func Replicas(key string, need Need, from []Candidate) []core.HostID {
	used := make(map[string]int)
	for _, z := range need.Zones {
		used[z]++
	}
	var out []core.HostID
	for tier := Good; tier < tiers; tier++ {
		limit := need.Want
		if len(out) > 0 {
			limit = need.Min
		}
		var ranked []Candidate
		for _, c := range from {
			if c.Tier == tier {
				ranked = append(ranked, c)
			}
		}
		ranked = core.RankWeighted(key, ranked, id, weight)
		for len(out) < limit && len(ranked) > 0 {
			best := 0
			for i, c := range ranked {
				if used[c.Zone] < used[ranked[best].Zone] {
					best = i
				}
			}
			used[ranked[best].Zone]++
			out = append(out, ranked[best].ID)
			ranked = slices.Delete(ranked, best, best+1)
		}
	}
	return out
}

// Load is how a store fares, as it says.
type Load struct {
	Free, Total    uint64 // bytes of its file system; Total 0: not known
	Full           bool   // it has no room for an extent, by its own rules
	BytesPerSecond uint64 // appended to it
	Sync           time.Duration
}

// Each of these halves a store's weight.
const (
	busyBytes = 64 << 20
	slowSync  = 20 * time.Millisecond
	// unknownSync is what a store counts as that has synced nothing lately: that is no sign of a fast disk.
	unknownSync = slowSync / 4
	// FullAt is the share of a store's space that is free when it counts as nearly full.
	FullAt = 0.10
)

// NearlyFull reports whether the store should get nothing more while others can.
func (l Load) NearlyFull() bool { return l.Full || l.Total > 0 && l.free() < FullAt }

func (l Load) free() float64 {
	if l.Total == 0 {
		return 1
	}
	return float64(l.Free) / float64(l.Total)
}

// Weight of a store for new extents, in 0.01 … 1: more for free space, less for load.
func (l Load) Weight() float64 {
	sync := l.Sync
	if sync == 0 {
		sync = unknownSync
	}
	w := l.free() / (1 + float64(l.BytesPerSecond)/busyBytes + sync.Seconds()/slowSync.Seconds())
	return min(max(w, 0.01), 1)
}
