// Package placement owns the choice of hosts for new work: pure, from a list of hosts to the chosen ones.
package placement

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/columbamq/columba/core"
)

// Candidate is a host that could take work.
type Candidate struct {
	ID   core.HostID
	Zone string
}

// Owner is the candidate with the highest score for the key (rendezvous hashing: Thaler and Ravishankar, 1998): when a host
// comes or goes, only its own keys move. ok is false without candidates.
func Owner(key string, from []Candidate) (owner core.HostID, ok bool) {
	if len(from) == 0 {
		return "", false
	}
	return slices.MaxFunc(from, byScore(key)).ID, true
}

// Replicas picks up to want distinct hosts for the key, spread over as many zones as there are, best scores first.
func Replicas(key string, want int, from []Candidate) []core.HostID {
	ranked := slices.Clone(from)
	slices.SortFunc(ranked, func(a, b Candidate) int { return byScore(key)(b, a) })
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

func byScore(key string) func(a, b Candidate) int {
	return func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(score(key, a.ID), score(key, b.ID)), cmp.Compare(a.ID, b.ID))
	}
}

func score(key string, host core.HostID) uint64 {
	h := fnv.New64a()
	h.Write([]byte(key))
	h.Write([]byte{0})
	h.Write([]byte(host))
	// FNV alone mixes its last bytes too little to rank by.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}
