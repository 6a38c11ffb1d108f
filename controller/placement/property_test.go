package placement

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
)

func drawCandidates(t *rapid.T) []Candidate {
	n := rapid.IntRange(0, 9).Draw(t, "hosts")
	zones := rapid.IntRange(1, 4).Draw(t, "zones")
	out := make([]Candidate, n)
	for i := range out {
		out[i] = Candidate{
			ID: core.HostID(fmt.Sprintf("host-%d", i)), Zone: fmt.Sprintf("zone-%d", rapid.IntRange(0, zones-1).Draw(t, "zone")),
			Tier: Tier(rapid.IntRange(0, 2).Draw(t, "tier")), Weight: rapid.Float64Range(0, 1).Draw(t, "weight"),
		}
	}
	return out
}

// TestReplicas_Properties: as many as there can be, distinct, no worse tier than needed, zones as even as the tiers
// allow.
func TestReplicas_Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := drawCandidates(t)
		want := rapid.IntRange(1, 5).Draw(t, "want")
		need := Need{Want: want, Min: rapid.IntRange(1, want).Draw(t, "min")}
		key := rapid.String().Draw(t, "key")
		got := Replicas(key, need, from)
		perTier := make([]int, tiers)
		for _, c := range from {
			perTier[c.Tier]++
		}
		best := 0 // of the best tier there is
		for tier := Good; tier < tiers && best == 0; tier++ {
			best = min(perTier[tier], want)
		}
		if expect := max(best, min(need.Min, len(from))); len(got) != expect {
			t.Fatalf("%d hosts, want %d: %v of %v", len(got), expect, got, from)
		}
		chosen := make([]int, tiers)
		zones := make(map[string]int)
		for i, h := range got {
			if slices.Contains(got[:i], h) {
				t.Fatalf("%s twice in %v", h, got)
			}
			c := from[slices.IndexFunc(from, func(c Candidate) bool { return c.ID == h })]
			chosen[c.Tier]++
			if c.Tier == Good {
				zones[c.Zone]++
			}
		}
		for tier := Avoided; tier < tiers; tier++ {
			if chosen[tier] > 0 && (chosen[tier-1] < perTier[tier-1]) {
				t.Fatalf("tier %d used while tier %d has others: %v of %v", tier, tier-1, got, from)
			}
		}
		for _, c := range from { // a good host left out is in no emptier zone than one that was taken twice
			if c.Tier == Good && !slices.Contains(got, c.ID) && chosen[Good] == want {
				for z, n := range zones {
					if n > zones[c.Zone]+1 {
						t.Fatalf("%d in %s, %d in %s where %s is free: %v", n, z, zones[c.Zone], c.Zone, c.ID, got)
					}
				}
			}
		}
		shuffled := slices.Clone(from)
		slices.Reverse(shuffled)
		if again := Replicas(key, need, shuffled); !slices.Equal(got, again) {
			t.Fatalf("the order of the candidates decides: %v, %v", got, again)
		}
	})
}

func TestReplicas_AwayFromZonesThatHaveACopy(t *testing.T) {
	from := candidates(6, 3)
	for i := range 50 {
		got := Replicas(fmt.Sprintf("key-%d", i), Need{Want: 1, Min: 1, Zones: []string{"zone-0", "zone-2"}}, from)
		if len(got) != 1 || got[0] != "host-1" && got[0] != "host-4" {
			t.Fatalf("got %v, want one of zone-1", got)
		}
	}
}

func TestLoad(t *testing.T) {
	idle := Load{Free: 90, Total: 100}
	for name, worse := range map[string]Load{
		"fuller":  {Free: 20, Total: 100},
		"busy":    {Free: 90, Total: 100, BytesPerSecond: 100 << 20},
		"slow":    {Free: 90, Total: 100, Sync: 200 * time.Millisecond},
		"no room": {Free: 0, Total: 100},
	} {
		if w := worse.Weight(); w >= idle.Weight() || w <= 0 {
			t.Errorf("%s weighs %v, idle %v", name, w, idle.Weight())
		}
	}
	if !(Load{Free: 5, Total: 100}).NearlyFull() || idle.NearlyFull() || (Load{}).NearlyFull() {
		t.Error("nearly full is below a tenth free, of a known size")
	}
}
