package frontend

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Two controllers decided about a share with the same counter. Routes and cancellations go by the same one, whichever
// order the rows have.
func TestShares_OneOfTwoEqualCountersCounts(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	c.addOutput("b")
	e := newExtent(g)
	run := core.RunID{ID: core.NewID(time.Now())}
	for by, owner := range map[core.HostID]core.HostID{"controller": "a", "controller-2": "b"} { // the latter is first in a list
		a := metadata.AssignmentRecord{Group: groupID(g), Queue: e.Queue, Name: g.Spec.Name, Extent: e, Counter: 5, By: by, ByRun: run, Owner: owner}
		if err := metadata.Write(t.Context(), c.store, metadata.Assignments, metadata.AssignmentKey(a.Group, e.ID, a.Precedence()), a, time.Now(), 0, metadata.One); err != nil {
			t.Fatal(err)
		}
	}
	routes, _, err := c.host.svc.owners(t.Context(), metadata.GroupRecord{ID: groupID(g)})
	if err != nil || len(routes) != 1 || routes[0].ID != "b" {
		t.Errorf("a route goes to %v: %v, want b", routes, err)
	}
	sh := share{groupID(g), e.ID}
	if owners, failed := c.host.svc.ownersOf(t.Context(), []share{sh}); owners[sh].ID != "b" || len(failed) > 0 {
		t.Errorf("a settlement goes to %v: %v, want b", owners, failed)
	}
	owner, err := timerCluster{service: c.host.svc}.Owner(t.Context(), groupID(g), e.ID)
	if err != nil || owner.Host != "b" || owner.Counter != 5 {
		t.Errorf("a cancellation asks %v: %v, want b", owner, err)
	}
}
