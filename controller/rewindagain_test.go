package controller

import (
	"testing"

	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestRewind_AfterOneThatFailed: a rewind to the end writes a position and then fails; the next one, to the beginning, must not begin there.
func TestRewind_AfterOneThatFailed(t *testing.T) {
	bubble(t, rigOptions{stores: 3}, func(r *rig) {
		queue := r.queue(3, 2)
		r.group(queue, "g")
		e := r.sealed(queue, 5)
		r.extent(queue, 3) // where that is, nobody can say in a moment
		for _, s := range r.stores {
			r.kill(s.id)
		}
		if _, err := r.ctl.rewindGroup(r.t.Context(), queue, "g", core.Start{Mode: core.StartLatest}, 0); err == nil {
			t.Fatal("it knows where an extent is whose stores are all away")
		}
		for _, s := range r.stores {
			r.restart(s)
		}
		epoch, err := r.ctl.rewindGroup(r.t.Context(), queue, "g", core.Start{Mode: core.StartEarliest}, 0)
		r.ok(err)
		g, _, err := metadata.Read[metadata.GroupRecord](r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, "g"), metadata.Serial)
		r.ok(err)
		n, err := progress.Settled(r.t.Context(), r.meta, g, e.ID)
		r.ok(err)
		if n != 0 || g.Epoch != epoch {
			t.Errorf("%d of 5 messages are skipped by a group that was sent to the beginning, at epoch %d", n, g.Epoch)
		}
	})
}
