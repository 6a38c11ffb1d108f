package controller

import (
	"testing"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Two decisions about a share have equal counters. A controller that reads them goes by the one that all other readers
// go by, and removes the other one.
func TestAssign_OneOfTwoEqualCountersCounts(t *testing.T) {
	early, late := core.RunID{ID: core.ID{1}}, core.RunID{ID: core.ID{2}}
	for name, x := range map[string]struct{ loser, winner metadata.Precedence }{
		"controllers":   {metadata.Precedence{Counter: 5, By: "a", Run: late}, metadata.Precedence{Counter: 5, By: "b", Run: early}},
		"longer name":   {metadata.Precedence{Counter: 5, By: "a", Run: late}, metadata.Precedence{Counter: 5, By: "a-b", Run: early}},
		"runs of one":   {metadata.Precedence{Counter: 5, By: "a", Run: early}, metadata.Precedence{Counter: 5, By: "a", Run: late}},
		"without a run": {metadata.Precedence{Counter: 5, By: "a"}, metadata.Precedence{Counter: 5, By: "a", Run: early}},
		"counters":      {metadata.Precedence{Counter: 4, By: "b", Run: late}, metadata.Precedence{Counter: 5, By: "a", Run: early}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness) {
				_, group, es := r.extents(1)
				r.ctl.end()
				counts := func() metadata.AssignmentRecord {
					all, err := metadata.Assigned(r.t.Context(), r.meta, group, metadata.One)
					r.ok(err)
					return all[es[0].ID]
				}
				a := counts()
				for _, o := range r.outputs { // the winner's is the host that the controller would choose
					p := x.loser
					if o.id == a.Owner {
						p = x.winner
					}
					a := a
					a.Counter, a.By, a.ByRun, a.Owner, a.Run = p.Counter, p.By, p.Run, o.id, o.run
					r.ok(metadata.Write(r.t.Context(), r.meta, metadata.Assignments, metadata.AssignmentKey(group, es[0].ID, p), a, time.Now(), 0, metadata.One))
				}
				if got := counts(); got.Precedence() != x.winner {
					r.t.Errorf("readers go by %+v", got)
				}
				r.ctl = r.startController(nil)
				r.sleep(time.Second)
				if got := r.ctl.shares.Get(catalog.Share{Group: group, Extent: es[0].ID}); got.Precedence() != x.winner || got.Owner.Host != a.Owner {
					r.t.Errorf("the controller goes by %+v", got)
				}
				if n := r.assignments(); n != 1 {
					r.t.Errorf("%d rows, want 1", n)
				}
			})
		})
	}
}
