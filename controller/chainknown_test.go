package controller

import (
	"slices"
	"testing"

	"github.com/columbamq/columba/core"
)

// places are the places of a queue's chain that a controller knows of.
func (c *running) places(queue core.QueueID) (out []uint64) {
	for _, e := range c.extents.Of(queue) {
		out = append(out, e.Chain)
	}
	slices.Sort(out)
	return out
}

// TestChain_MadeByAnotherController: a controller that hears of a place of a chain hears of the places before, too. Else it
// would give that place out before them.
func TestChain_MadeByAnotherController(t *testing.T) {
	for name, hear := range map[string]func(r *harness, second *running, last core.Extent){
		"asked for the next": func(r *harness, second *running, last core.Extent) {
			e, err := second.ensureExtent(r.t.Context(), r.wish(last.Queue))
			r.ok(err)
			if e.Chain != last.Chain+1 {
				t.Fatalf("got place %d after %d", e.Chain, last.Chain)
			}
		},
		"told of the seal": func(r *harness, second *running, last core.Extent) { r.ok(second.note(r.t.Context(), r.row(last))) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
				second := r.startController(calm)
				defer second.end()
				queue := r.chainedQueue()
				var last core.Extent
				for range 3 {
					last = r.extent(queue, 5)
					_, err := r.seal(last, 0)
					r.ok(err)
				}
				hear(r, second, last)
				if got := second.places(queue); !slices.Equal(got[:min(3, len(got))], []uint64{1, 2, 3}) {
					t.Errorf("it knows of the places %v, want those from 1 on", got)
				}
			})
		})
	}
}
