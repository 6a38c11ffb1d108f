package controller

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestPreviewRewind counts what a rewind would give to a group, and the rewind leaves behind where it went.
func TestPreviewRewind(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		queue := r.queue(3, 2)
		r.group(queue, "g")
		r.sealed(queue, 5)
		r.extent(queue, 3)
		earliest := core.Start{Mode: core.StartEarliest}
		for _, c := range []struct {
			to       core.Start
			messages uint64
			extents  uint32
		}{
			{earliest, 8, 2},
			{core.Start{Mode: core.StartLatest}, 0, 0},
			{core.Start{Mode: core.StartTime, At: time.UnixMicro(1)}, 8, 2},
			{core.Start{Mode: core.StartTime, At: time.Now()}, 0, 0},
		} {
			p, err := r.previewRewind(r.ctl, queue, "g", c.to)
			r.ok(err)
			if p.Messages != c.messages || p.Extents != c.extents {
				t.Errorf("to %s: %d messages in %d extents, want %d in %d", c.to, p.Messages, p.Extents, c.messages, c.extents)
			}
		}
		read := func() metadata.GroupRecord {
			g, _, err := metadata.Read[metadata.GroupRecord](r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, "g"), metadata.Serial)
			r.ok(err)
			return g
		}
		if g := read(); g.Epoch != 0 || g.Rewind != nil || g.LastSeek != nil {
			t.Errorf("a preview changed the group: %+v", g)
		}
		_, err := r.rewindGroup(r.ctl, queue, "g", earliest, 0)
		r.ok(err)
		if g := read(); g.LastSeek == nil || g.LastSeek.To != earliest || g.LastSeek.At.IsZero() {
			t.Errorf("the group does not know where it was sent: %+v", g.LastSeek)
		}
		if _, err := r.ctl.previewRewind(r.t.Context(), queue, "none", core.GroupID{}, earliest); core.CodeOf(err) != core.CodeNotFound {
			t.Errorf("a group that is not there: %v", err)
		}
		for _, s := range r.stores {
			r.kill(s.id)
		}
		if p, err := r.previewRewind(r.ctl, queue, "g", earliest); err == nil {
			t.Errorf("without any store it counts %v", p)
		}
	})
}
