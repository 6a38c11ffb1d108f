package controller

import (
	"slices"
	"testing"
	"time"

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

// TestChain_MadeByAnotherController: a controller that hears of a place of a chain hears of the places before, too.
// Else it would give that place out before them.
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

// TestChain_ToldOfTheLastPlaceOnly: while the controller of a CP queue is not reached, another one makes extents of the
// queue. The controller is told of the next one. It gives that one out together with those before, not earlier, be the
// queue new to it or not.
func TestChain_ToldOfTheLastPlaceOnly(t *testing.T) {
	for _, before := range []int{0, 1} {
		two(t, harnessOptions{stores: 3, outputs: 1}, func(r *harness, both [2]*running) {
			queue := r.chainedQueue()
			for of(both, queue) != 0 {
				queue = r.chainedQueue()
			}
			r.group(queue, "g")
			makes := func(c *running) core.Extent {
				e, err := c.ensureExtent(r.t.Context(), r.wish(queue))
				r.ok(err)
				return e
			}
			seals := func(c *running, e core.Extent) {
				for _, s := range r.replicas(e) {
					s.write(e, "a message")
				}
				_, err := r.sealBy(c, e, 1)
				r.ok(err)
			}
			for range before {
				seals(both[0], makes(both[0]))
				r.sleep(time.Second)
			}
			r.kill("ctl")
			for range 2 {
				seals(both[1], makes(both[1]))
			}
			r.answer(both[0])
			last := makes(both[1])
			o := r.outputs[0]
			r.eventually("it is given out", 2*time.Second, func() bool { return o.shares()[last.ID] != nil })
			if got := len(o.shares()); got != before+3 {
				t.Errorf("place %d is given out with %d others, want all of the chain", last.Chain, got-1)
			}
		})
	}
}
