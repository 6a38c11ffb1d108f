package placement

import (
	"fmt"
	"slices"
	"testing"

	"github.com/columbamq/columba/core"
)

func candidates(n, zones int) []Candidate {
	out := make([]Candidate, n)
	for i := range out {
		out[i] = Candidate{ID: core.HostID(fmt.Sprintf("host-%d", i)), Zone: fmt.Sprintf("zone-%d", i%zones)}
	}
	return out
}

func TestOwner_NobodyOwnsWithoutCandidates(t *testing.T) {
	if owner, ok := Owner("key", nil); ok || owner != "" {
		t.Errorf("got %q, %v", owner, ok)
	}
}

// TestOwner_OnlyTheKeysOfALostHostMove takes one host away and spreads its keys over the others.
func TestOwner_OnlyTheKeysOfALostHostMove(t *testing.T) {
	const keys = 10_000
	all := candidates(5, 1)
	rest := slices.Delete(slices.Clone(all), 2, 3)
	owned := make(map[core.HostID]int)
	for i := range keys {
		key := fmt.Sprintf("key-%d", i)
		before, _ := Owner(key, all)
		after, _ := Owner(key, rest)
		owned[before]++
		if before != "host-2" && before != after {
			t.Fatalf("%s moved from %s to %s, neither was lost", key, before, after)
		}
	}
	for _, c := range all {
		if n := owned[c.ID]; n < keys/5*8/10 || n > keys/5*12/10 {
			t.Errorf("%s owns %d of %d keys, want about a fifth", c.ID, n, keys)
		}
	}
}

func TestReplicas_SpreadOverZones(t *testing.T) {
	for _, tc := range []struct{ hosts, zones, want, distinct int }{
		{6, 3, 3, 3}, {6, 2, 3, 2}, {6, 1, 3, 1}, {2, 2, 3, 2}, {0, 1, 3, 0}, {9, 3, 5, 3},
	} {
		from := candidates(tc.hosts, tc.zones)
		for i := range 100 {
			got := Replicas(fmt.Sprintf("key-%d", i), Need{Want: tc.want, Min: 1}, from)
			if len(got) != min(tc.want, tc.hosts) {
				t.Fatalf("%+v: got %v", tc, got)
			}
			zones := make(map[string]int)
			for j, id := range got {
				if slices.Contains(got[:j], id) {
					t.Fatalf("%+v: %s twice in %v", tc, id, got)
				}
				zones[from[slices.IndexFunc(from, func(c Candidate) bool { return c.ID == id })].Zone]++
			}
			if len(zones) != tc.distinct {
				t.Fatalf("%+v: %v in %d zones", tc, got, len(zones))
			}
			for z, n := range zones {
				if most := (len(got) + tc.distinct - 1) / tc.distinct; n > most {
					t.Fatalf("%+v: %d in %s, want up to %d", tc, n, z, most)
				}
			}
		}
	}
}
