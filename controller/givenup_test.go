package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestGivenUp_HeardOfElsewhere: a controller that noted an extent as lost reads its row for another reason after
// another one gave it up. Its readers hear of it all the same, and it is not reported as lost any more.
func TestGivenUp_HeardOfElsewhere(t *testing.T) {
	for name, read := range map[string]func(r *harness, e core.Extent){
		"an operator asks again": func(r *harness, e core.Extent) {
			_, err := r.ctl.Host.seal(r.t.Context(), order{extent: e, reason: "operator", force: true})
			r.ok(err)
		},
		"a group begins": func(r *harness, e core.Extent) {
			_, err := r.ctl.known(r.t.Context(), e.Queue)
			r.ok(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3, outputs: 1}, func(r *harness) {
				e, others := r.sealedAloneOf(5, 5)
				r.group(e.Queue, "g")
				for _, s := range others {
					s.cut(e, 4)
					r.wake(s)
				}
				out, batches := r.outputs[0], others[0].has(e.ID).batches
				r.eventually("it is reported", 5*time.Minute, func() bool { return r.value(r.ctl.metrics.lost) == 1 && out.shares()[e.ID] != nil })
				first := r.replicas(e)[0]
				first.with(func() {
					first.replicas[e.ID] = &fakeReplica{tuple: e, fenced: true, sealed: true, l: 5, batches: slices.Clone(batches)}
				})
				_, err := metadata.Change(r.t.Context(), r.meta, metadata.Seals, metadata.SealKey(e.ID), func(s *metadata.SealRecord) error {
					var holders []core.Place
					for _, x := range r.replicas(e) {
						holders = append(holders, core.Place{Store: x.id, Disk: x.disk})
					}
					s.SetPlaces(holders)
					return s.GiveUp(5, sumOf(batches), time.Now())
				})
				r.ok(err)
				read(r, e)
				r.eventually("its owner hears of it", 5*time.Minute, func() bool { a := out.shares()[e.ID]; return a == nil || a.Removed == 1 })
				r.eventually("it is not reported any more", 5*time.Minute, func() bool { return r.value(r.ctl.metrics.lost) == 0 })
			})
		})
	}
}
