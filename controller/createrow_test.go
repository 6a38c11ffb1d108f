package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// damage overwrites the create row of an extent.
func (r *harness) damage(e core.Extent, value string) {
	r.t.Helper()
	r.ok(r.meta.Put(r.t.Context(), metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), []byte(value), time.Now().Add(time.Second), 0, metadata.Quorum))
}

// unhint removes the hints of an extent.
func (r *harness) unhint(e core.Extent) {
	r.t.Helper()
	for _, hint := range []metadata.Hint{metadata.HintLive, metadata.HintOpen} {
		r.ok(r.meta.Remove(r.t.Context(), metadata.Work, metadata.HintKey(hint, e.ID), time.Now().Add(time.Minute), metadata.Quorum))
	}
}

// TestLoad_DamagedCreateRow: the create row of an extent cannot be decoded. The hint or the seal row of the extent
// stands in for the row: the chain goes on in its order, groups start and seek in all extents, and the extent gets its
// share. The controller names the row until it is whole.
func TestLoad_DamagedCreateRow(t *testing.T) {
	for name, unhinted := range map[string]bool{"its hint is whole": false, "its seal row is whole": true} {
		for kind, value := range map[string]string{"no record": `{"id":5}`, "no extent": `{}`} {
			t.Run(name+", "+kind, func(t *testing.T) {
				bubble(t, harnessOptions{stores: 3, outputs: 1}, func(r *harness) {
					queue := r.chainedQueue()
					r.group(queue, "g")
					first := r.sealed(queue, 5)
					second := r.sealed(queue, 3)
					r.ctl.end()
					if r.damage(first, value); unhinted {
						r.unhint(first)
					}
					r.ctl = r.startController(beside)
					r.eventually("the extents are known", time.Minute, func() bool { return r.ctl.loaded() == nil })
					head, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
					if err != nil || head.Chain != 3 || !r.head(queue).Equal(head) {
						t.Fatalf("the next extent is %+v (%v), want the third place of the chain", head, err)
					}
					o := r.outputs[0]
					r.eventually("the whole chain is given out", time.Minute, func() bool {
						all := o.shares()
						return all[first.ID] != nil && all[second.ID] != nil && all[head.ID] != nil
					})
					r.halfMade(queue, "late")
					r.edit(queue, "late", func(g *metadata.GroupRecord) { g.Spec.Start.Mode = core.StartLatest })
					r.ok(r.startGroup(r.ctl, queue, "late"))
					r.skipsAll(r.readGroup(queue, "late"), first)
					_, err = r.rewindGroup(r.ctl, queue, "g", core.Start{Mode: core.StartTime, At: time.Now()}, 0)
					r.ok(err)
					r.skipsAll(r.readGroup(queue, "g"), first)
					if n := r.value(r.ctl.metrics.unreadable); n != 1 {
						t.Errorf("%v rows count as unreadable, want 1", n)
					}
					if n := strings.Count(r.log.text(), "row="+first.ID.String()); n != 1 {
						t.Errorf("the log names the row %d times, want once", n)
					}
					r.loads(r.ctl)
					if n := r.value(r.ctl.metrics.unreadable); n != 1 {
						t.Errorf("%v rows count as unreadable after another reading, want 1", n)
					}
					r.sleep(2 * time.Second)
					r.ok(r.ctl.writeRow(r.t.Context(), metadata.ExtentRecord{Extent: first, Created: time.Now()}, time.Now(), metadata.Quorum))
					r.loads(r.ctl)
					if n := r.value(r.ctl.metrics.unreadable); n != 0 {
						t.Errorf("%v rows count as unreadable after the row was mended, want 0", n)
					}
				})
			})
		}
	}
}

// TestLoad_DamagedCreateRowAlone: neither a hint nor a seal row stands in for the create row of an extent that cannot
// be decoded. The other extents go on. No group counts the extent as consumed, and it is found again by its stores.
func TestLoad_DamagedCreateRowAlone(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, outputs: 1}, func(r *harness) {
		queue := r.queue(3, 2)
		g := r.group(queue, "g")
		lost := r.extent(queue, 5)
		r.ctl.end()
		r.damage(lost, `{"id":5}`)
		r.unhint(lost)
		r.ctl = r.startController(nil)
		r.eventually("the extents are known", time.Minute, func() bool { return r.ctl.loaded() == nil })
		r.halfMade(queue, "late")
		r.edit(queue, "late", func(g *metadata.GroupRecord) { g.Spec.Start.Mode = core.StartLatest })
		r.ok(r.startGroup(r.ctl, queue, "late"))
		if _, err := r.rewindGroup(r.ctl, queue, "g", core.Start{Mode: core.StartLatest}, 0); err != nil {
			t.Errorf("a seek: %v", err)
		}
		for _, name := range []string{"g", "late"} {
			group := r.readGroup(queue, name)
			if done, err := metadata.IsConsumed(r.t.Context(), r.meta, group.ID, lost.ID, group.Epoch, metadata.Serial); err != nil || done {
				t.Errorf("the extent counts as consumed by %s: %t, %v", name, done, err)
			}
		}
		other, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		o := r.outputs[0]
		r.eventually("the other extent is given out", time.Minute, func() bool { return o.shares()[other.ID] != nil })
		r.eventually("the extent is known by its stores", 10*time.Minute, func() bool {
			_, known := r.ctl.extents.Get(lost.ID)
			return known
		})
		if r.eventually("it is given out", time.Minute, func() bool { return r.ownerOf(g, lost.ID) == o.id }); !r.hinted(metadata.HintLive, lost.ID) {
			t.Error("the extent has no hint again")
		}
		row, err := r.meta.Get(r.t.Context(), metadata.Extents, metadata.ExtentKey(queue, lost.ID), metadata.Quorum)
		if err != nil || string(row.Value) != `{"id":5}` {
			t.Errorf("the damaged row is now %s (%v): a newer version may have written it", row.Value, err)
		}
	})
}
