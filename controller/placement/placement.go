// Package placement owns the choice of hosts for new work: pure, from a list of hosts to the chosen ones.
package placement

import (
	"slices"

	"github.com/columbamq/columba/core"
)

// Candidate is a host that could take work.
type Candidate struct {
	ID   core.HostID
	Zone string
}

func id(c Candidate) core.HostID { return c.ID }

// Owner is the candidate that rendezvous hashing gives the key to. ok is false without candidates.
func Owner(key string, from []Candidate) (owner core.HostID, ok bool) {
	if len(from) == 0 {
		return "", false
	}
	return core.Rank(key, from, id)[0].ID, true
}

// Replicas picks up to want distinct hosts for the key, spread over as many zones as there are, the best ranks first.
func Replicas(key string, want int, from []Candidate) []core.HostID {
	ranked := core.Rank(key, from, id)
	var out []core.HostID
	used := map[string]int{}
	for round := 0; len(out) < want && len(ranked) > 0; round++ {
		ranked = slices.DeleteFunc(ranked, func(c Candidate) bool {
			if len(out) == want || used[c.Zone] > round {
				return false
			}
			used[c.Zone]++
			out = append(out, c.ID)
			return true
		})
	}
	return out
}
