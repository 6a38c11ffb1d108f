package sources

import (
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
)

// newStores are stores of these ids, in zones, for a host of no zone.
func newStores(t *testing.T, zones map[core.HostID]string) *Stores {
	t.Helper()
	members, err := static.New(membership.Host{ID: "out", Roles: []string{"outputhost"}, Address: "out:1", Run: core.RunID{ID: core.NewID(time.Now())}})
	if err != nil {
		t.Fatal(err)
	}
	hosts := []membership.Host{members.Self()}
	for id, zone := range zones {
		hosts = append(hosts, membership.Host{ID: id, Roles: []string{"storehost"}, Address: string(id) + ":1", Zone: zone})
	}
	if err := members.Set(hosts); err != nil {
		t.Fatal(err)
	}
	return New(members)
}

func idsOf(from []membership.Host) []core.HostID {
	var out []core.HostID
	for _, s := range from {
		out = append(out, s.ID)
	}
	return out
}

func TestSources_LiveHoldersInTurn(t *testing.T) {
	b := newStores(t, map[core.HostID]string{"a": "", "b": "", "c": "", "d": ""})
	e := core.Extent{ID: core.ExtentID{ID: core.ID{7}}, Replicas: []core.HostID{"a", "b", "c", "gone"}}
	now := time.Unix(1000, 0)
	first := idsOf(b.Of(e, nil, nil, now))
	if slices.Sort(slices.Clone(first)); len(first) != 3 || slices.Contains(first, "gone") {
		t.Fatalf("open: %v, want the three live replicas", first)
	}
	if got := idsOf(b.Of(e, []core.HostID{"d", "b"}, nil, now)); len(got) != 2 || slices.Contains(got, "a") {
		t.Errorf("sealed: %v, want the holders, a repaired one too, and no other", got)
	}
	for lost, failed := range map[string]map[core.HostID]time.Time{"failed": {"d": now.Add(time.Second)}, "not there": nil} {
		holders := []core.HostID{"d"}
		if failed == nil {
			holders[0] = "gone"
		}
		got := idsOf(b.Of(e, holders, failed, now))
		if len(got) < 3 || slices.Contains(got[:3], "d") {
			t.Errorf("sealed, and the only holder is %s: %v, want the other replicas in front", lost, got)
		}
	}
	if got := idsOf(b.All(e, []core.HostID{"d", "b"}, now)); len(got) != 4 || slices.Contains(got[2:], "b") || slices.Contains(got[2:], "d") {
		t.Errorf("all: %v, want the holders in front", got)
	}
	b.Shun(first[0], now)
	if got := idsOf(b.Of(e, nil, nil, now)); got[2] != first[0] || got[0] != first[1] {
		t.Errorf("after %s failed: %v", first[0], got)
	}
	failed := map[core.HostID]time.Time{first[1]: now.Add(time.Second)}
	if got := idsOf(b.Of(e, nil, failed, now)); got[0] != first[2] || got[1] != first[1] {
		t.Errorf("after the extent failed at %s, too: %v; want it before the store that failed for longer", first[1], got)
	}
	if got := idsOf(b.Of(e, nil, failed, now.Add(ShunFor))); !slices.Equal(got, first) {
		t.Errorf("later: %v, want %v again", got, first)
	}
}

func TestSources_OwnZoneFirst(t *testing.T) {
	b := newStores(t, map[core.HostID]string{"a": "far", "b": "", "c": "far"})
	for i := range byte(20) {
		e := core.Extent{ID: core.ExtentID{ID: core.ID{i}}, Replicas: []core.HostID{"a", "b", "c"}}
		if got := idsOf(b.Of(e, nil, nil, time.Unix(1000, 0))); got[0] != "b" {
			t.Fatalf("extent %d: %v, want the store of the own zone first", i, got)
		}
	}
}
