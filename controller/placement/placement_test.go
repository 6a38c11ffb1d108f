package placement_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
)

func TestReplicas_SpreadOverZones(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, zones, want := rapid.IntRange(0, 12).Draw(t, "hosts"), rapid.IntRange(1, 5).Draw(t, "zones"), rapid.IntRange(0, 7).Draw(t, "want")
		var from []placement.Candidate
		zoneOf, size := map[core.HostID]string{}, map[string]int{}
		for i := range n {
			c := placement.Candidate{ID: core.HostID(fmt.Sprintf("h%d", i)), Zone: fmt.Sprintf("z%d", rapid.IntRange(0, zones-1).Draw(t, "zone"))}
			from = append(from, c)
			zoneOf[c.ID] = c.Zone
			size[c.Zone]++
		}
		got := placement.Replicas(rapid.String().Draw(t, "key"), want, from)
		if len(got) != min(want, n) {
			t.Fatalf("%d hosts, want %d of %d", len(got), want, n)
		}
		seen, used := map[core.HostID]bool{}, map[string]int{}
		for _, h := range got {
			if seen[h] {
				t.Fatalf("%s twice in %v", h, got)
			}
			seen[h] = true
			used[zoneOf[h]]++
		}
		for a := range size {
			for b := range size {
				if used[a] > used[b]+1 && used[b] < size[b] {
					t.Fatalf("zone %s has %d replicas, zone %s %d with room for more", a, used[a], b, used[b])
				}
			}
		}
	})
}

func TestOwner(t *testing.T) {
	if _, ok := placement.Owner("k", nil); ok {
		t.Fatal("an owner of nothing")
	}
	if h, ok := placement.Owner("k", []placement.Candidate{{ID: "only"}}); !ok || h != "only" {
		t.Fatalf("got %q %t", h, ok)
	}
}
