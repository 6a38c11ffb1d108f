package controller

import (
	"context"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// slowRemovals is metadata in which the removal of an assignment takes a second.
type slowRemovals struct{ metadata.Store }

func (s slowRemovals) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	if t == metadata.Assignments {
		<-time.After(time.Second)
	}
	return s.Store.Remove(ctx, t, k, at, c)
}

// A group loses its shares of some extents, and gets them again while their rows are being removed. The new rows stay.
func TestForget_RemovesNoRowOfAShareThatIsGivenAgain(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		r.ctl.end()
		r.use(slowRemovals{r.meta})
		r.ctl = r.startController(nil)
		const n = 4 * removalsAtOnce
		queue, letters := r.queue(1, 1), r.queue(1, 1)
		group := r.group(queue, "g")
		var all []core.Extent
		for range n {
			all = append(all, r.sealed(letters, 1))
		}
		give := func(to core.Home, want int) {
			for _, e := range all {
				r.rehome(e, to)
			}
			r.eventually("the group has its shares", 100*time.Millisecond, func() bool { return r.ctl.shares.Count() == want })
		}
		give(core.MergedInto(queue, group), n)
		give(core.Home{Kind: core.HomePurged}, 0)
		give(core.MergedInto(queue, group), n)
		r.sleep(time.Minute)
		if rows := rows(r, metadata.Assignments, group.String()); rows != n {
			t.Errorf("%d rows of %d shares", rows, n)
		}
	})
}

// The clock of the controller that wrote a row was ahead. The row goes all the same.
func TestForget_RemovesARowFromTheFuture(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		_, group, es := r.extents(1)
		r.ctl.end()
		all, err := metadata.Assigned(r.t.Context(), r.meta, group, metadata.Serial)
		r.ok(err)
		a := all[es[0].ID]
		a.Counter, a.Owner, a.Run = 7, "gone", newRun()
		r.ok(metadata.Write(r.t.Context(), r.meta, metadata.Assignments, metadata.AssignmentKey(group, a.Extent.ID, a.Precedence()), a, time.Now().Add(10*time.Minute), 0, metadata.One))
		r.ctl = r.startController(nil)
		r.eventually("the share has another owner", time.Minute, func() bool { return len(r.owners()) == 1 })
		r.sleep(time.Minute)
		if n := r.assignments(); n != 1 {
			t.Errorf("%d rows, want 1", n)
		}
	})
}
