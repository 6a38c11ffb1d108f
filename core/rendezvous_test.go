package core_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

func self(h core.HostID) core.HostID { return h }

func TestRank_SpreadsAndMovesOnlyTheGone(t *testing.T) {
	var hosts []core.HostID
	for i := range 10 {
		hosts = append(hosts, core.HostID(fmt.Sprintf("host-%d", i)))
	}
	count := make(map[core.HostID]int)
	for i := range 10_000 {
		key := fmt.Sprintf("key-%d", i)
		with, without := core.Rank(key, hosts, self), core.Rank(key, hosts[:9], self)
		count[with[0]]++
		if with[0] != hosts[9] && with[0] != without[0] {
			t.Fatalf("%s moved from %s to %s though its host stayed", key, with[0], without[0])
		}
	}
	for h, n := range count {
		if n < 800 || n > 1200 {
			t.Errorf("%s wins %d of 10,000 keys, want about 1,000", h, n)
		}
	}
}

func TestRank_IgnoresTheOrderOfItems(t *testing.T) {
	a := core.Rank("k", []core.HostID{"a", "b", "c"}, self)
	b := core.Rank("k", []core.HostID{"c", "a", "b"}, self)
	if fmt.Sprint(a) != fmt.Sprint(b) || len(a) != 3 {
		t.Fatalf("got %v and %v", a, b)
	}
	if got := core.Rank[core.HostID]("k", nil, self); len(got) != 0 {
		t.Fatalf("got %v of nothing", got)
	}
}

func TestRanksFirst_AgreesWithRank(t *testing.T) {
	hosts := []core.HostID{"host-a", "host-b", "host-c", "host-d"}
	for i := range 1000 {
		key := fmt.Sprintf("key-%d", i)
		for n := range hosts {
			others := slices.Delete(slices.Clone(hosts), n, n+1)
			if first := core.Rank(key, hosts, self)[0]; core.RanksFirst(key, hosts[n], others) != (first == hosts[n]) {
				t.Fatalf("%s ranks %s first; RanksFirst disagrees about %s", key, first, hosts[n])
			}
		}
	}
	if !core.RanksFirst("k", "a", nil) {
		t.Error("a host without others is not the first")
	}
}

func BenchmarkRanksFirst(b *testing.B) {
	key, others := core.NewID(time.Unix(0, 0)).String(), []core.HostID{"host-b302099a8057", "host-b302099a8058"}
	for b.Loop() {
		core.RanksFirst(key, "host-b302099a8056", others)
	}
}

func TestRankWeighted_WinsByWeight(t *testing.T) {
	type host struct {
		id     core.HostID
		weight float64
	}
	hosts := []host{{"a", 1}, {"b", 2}, {"c", 5}}
	const keys = 8000
	won := make(map[core.HostID]int)
	for i := range keys {
		ranked := core.RankWeighted(fmt.Sprintf("key-%d", i), hosts, func(h host) core.HostID { return h.id }, func(h host) float64 { return h.weight })
		if len(ranked) != len(hosts) {
			t.Fatalf("ranked %v", ranked)
		}
		won[ranked[0].id]++
	}
	for _, h := range hosts {
		want := keys / 8 * h.weight
		if got := float64(won[h.id]); got < 0.85*want || got > 1.15*want {
			t.Errorf("%s won %v of %d keys, want about %v", h.id, got, keys, want)
		}
	}
}
