package controller

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestStart_HintsOfAnEarlierVersion: an earlier version kept all hints of a kind in one partition. Its extents are
// known after a start, and nothing is left there.
func TestStart_HintsOfAnEarlierVersion(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		queue := r.queue(1, 1)
		open := r.extent(queue, 1)
		sealed := r.sealed(r.queue(1, 1), 1)
		r.sleep(10 * time.Second)
		record, err := r.created(r.meta, open, metadata.Quorum)
		r.ok(err)
		r.ok(r.ctl.writeHint(r.t.Context(), metadata.HintOpen, record, record.Created, metadata.One)) // as that version did when it made the extent
		r.ctl.end()
		for _, h := range []metadata.Hint{metadata.HintOpen, metadata.HintLive} {
			for x, err := range metadata.Hints(r.t.Context(), r.meta, h, metadata.One) {
				r.ok(err)
				row, err := metadata.NewRow(metadata.Work, metadata.Key{Partition: string(h), Row: x.Value.ID.String()}, x.Value, x.Written.Add(time.Second))
				r.ok(err)
				r.ok(r.meta.PutAll(r.t.Context(), metadata.Work, []metadata.Row{row}, metadata.One))
				r.ok(r.meta.Remove(r.t.Context(), metadata.Work, x.Key, x.Written, metadata.One))
			}
		}
		r.ctl = r.startController(nil)
		for e, want := range map[core.ExtentID]core.ExtentState{open.ID: core.ExtentOpen, sealed.ID: core.ExtentSealed} {
			if got, known := r.ctl.extents.Get(e); !known || got.State != want {
				t.Errorf("extent %s is known: %t, as %s, want %s", e, known, got.State, want)
			}
		}
		for _, h := range []metadata.Hint{metadata.HintOpen, metadata.HintLive} {
			if n := rows(r, metadata.Work, string(h)); n > 0 {
				t.Errorf("%d %s hints are left where an earlier version kept them", n, h)
			}
		}
		if open, live := hints(r, metadata.HintOpen), hints(r, metadata.HintLive); open != 1 || live != 2 {
			t.Errorf("%d open and %d live hints", open, live)
		}
		r.kill("in")
		r.leave("in")
		r.eventually("the open one is sealed", 30*time.Second, func() bool { e, _ := r.ctl.extents.Get(open.ID); return e.State.HasEnd() })
		r.eventually("its hint is removed", 30*time.Second, func() bool { return hints(r, metadata.HintOpen) == 0 })
	})
}
