package backlog

import (
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
)

// TestRetries_AreTold: the retries of a group are what its shares hold and all that is left of its retry queue; owners
// of its shares are told, but the one of the retry queue alone, and only when there are many.
func TestRetries_AreTold(t *testing.T) {
	r := newHarness(t, 10)
	q, retry := r.queue("/t/q"), r.queue("/t/q/g.retry")
	g := r.group(q, "/t/q", "g")
	g.Retry, g.Spec.MaxDelayedRetries = retry, 100_000
	first, second, parked := r.extent(q), r.extent(q), r.extent(retry)
	parked.Kind = core.KindTimer
	r.merge(parked, g)
	for _, e := range []*catalog.Extent{first, second} {
		r.store(e, 1000, 1000)
	}
	r.store(parked, 300, 300)
	r.SetGroups(q, []Group{pending(g, first, second, parked)})
	a, b, c := r.owner("a"), r.owner("b"), r.owner("c")
	a.says(g, first, &pb.ShareCounts{Settled: 900, DelayedRetry: 10, InFlight: 5, Retries: 12})
	b.says(g, second, &pb.ShareCounts{Settled: 900, Ready: 7, Blocked: 3, Retries: 7})
	c.says(g, parked, &pb.ShareCounts{Settled: 100, Ready: 20, InFlight: 30, Unread: uint32(backlog.DelayedRetry)})
	r.round()
	if d := r.depth("/t/q", "g"); d.Retries != 12+7+200 {
		t.Errorf("%d retries", d.Retries)
	}
	for id, o := range r.owners {
		told, want := o.told.GetGroups(), 1
		if id == "c" {
			want = 0
		}
		if len(told) != want || want == 1 && (told[0].Retries != 219 || told[0].Owners != 2) || o.told.GetHosts() != 3 {
			t.Errorf("host %s is told %v", id, o.told)
		}
	}
	c.says(g, parked, &pb.ShareCounts{Settled: 250, Ready: 20, InFlight: 30, Unread: uint32(backlog.DelayedRetry)})
	r.round()
	if len(a.told.GetGroups())+len(b.told.GetGroups()) != 0 {
		t.Errorf("hosts are told of few retries: %v", a.told)
	}
}
