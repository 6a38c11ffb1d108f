package controller

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// rehome changes the home of a sealed extent, as an operation does.
func (r *harness) rehome(e core.Extent, to core.Home) {
	r.t.Helper()
	row, err := metadata.Change(r.t.Context(), r.meta, metadata.Seals, metadata.SealKey(e.ID), func(row *metadata.SealRecord) error {
		row.Home, row.Homed, row.Version = to, time.Now(), row.Version+1
		return nil
	})
	r.ok(err)
	deadLetters{r.ctl.Host}.Rehomed(row)
}

// shared are the groups that have a share of an extent, of all output hosts.
func (r *harness) shared(e core.Extent) (groups []core.GroupID) {
	for _, o := range r.outputs {
		for _, a := range o.assignments() {
			if core.ID(a.GetExtent().GetId()) == e.ID.ID {
				groups = append(groups, core.GroupID{ID: core.ID(a.GetGroup())})
			}
		}
	}
	return groups
}

// TestAssign_ByHome gives an extent to the groups of its queue, then to the group that it is merged into, and to nobody
// when it is purged; also after the controller was started again.
func TestAssign_ByHome(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, outputs: 2}, func(r *harness) {
		queue, letters := r.queue(3, 2), r.queue(3, 2)
		g := r.group(queue, "g")
		r.group(queue, "other")
		sift := r.group(letters, "sift")
		e, away := r.sealed(letters, 5), r.sealed(letters, 5)
		only := func(e core.Extent, want ...core.GroupID) {
			t.Helper()
			r.eventually("the right groups have it", 5*time.Second, func() bool {
				got := r.shared(e)
				return len(got) == len(want) && (len(want) == 0 || got[0] == want[0])
			})
		}
		only(e, sift)
		only(away, sift)
		r.rehome(e, core.MergedInto(queue, g))
		r.rehome(away, core.Home{Kind: core.HomePurged})
		only(e, g)
		only(away)
		for _, o := range r.outputs {
			o.with(func() {
				for of, l := range o.lists {
					for _, a := range l.Assignments {
						if core.ID(a.GetExtent().GetId()) == e.ID.ID && of != queue {
							t.Errorf("the share of the merged extent is in the list of queue %s, want that of its group", of)
						}
					}
				}
			})
		}
		late := r.group(letters, "late")
		r.ctl.end()
		r.ctl = r.startController(nil)
		r.sleep(5 * time.Second)
		only(e, g)
		only(away)
		r.done(g, e)
		r.eventually("it is consumed", time.Minute, func() bool { return len(r.shared(e)) == 0 })
		if got := r.shared(away); len(got) > 0 || late.IsZero() {
			t.Errorf("the purged extent is given to %v", got)
		}
	})
}

// TestRetain_ByHome: what was merged stays until its group has consumed it, and counts from the merge; what was purged
// goes within minutes.
func TestRetain_ByHome(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
		queue := r.queue(3, 2)
		g := r.group(queue, "g")
		r.group(queue, "behind")
		kept, gone := r.keeping(keepConsumed, keepUnconsumed), r.keeping(keepConsumed, keepUnconsumed)
		merged, purged := r.sealed(kept, 5), r.sealed(gone, 7)
		r.group(gone, "sift")
		r.sleep(keepUnconsumed - 5*time.Minute)
		r.rehome(merged, core.MergedInto(queue, g))
		r.rehome(purged, core.Home{Kind: core.HomePurged})
		r.eventually("it is removed", 5*time.Minute, func() bool { _, live := r.ctl.extents.Get(purged.ID); return !live && r.held(purged) == 0 })
		if n := r.value(r.ctl.metrics.expired); n != 0 {
			t.Errorf("%v extents expired, it was purged", n)
		}
		r.sleep(5 * time.Minute)
		r.stays(merged, 5, "it was merged a moment ago")
		r.done(g, merged)
		r.sleep(4 * time.Minute)
		r.stays(merged, 5, "consumed a moment ago")
		r.sleep(keepConsumed - 4*time.Minute)
		r.goes(merged)
		if n := rows(r, metadata.Checkpoints, metadata.CheckpointPartition(g, merged.ID)); n > 0 {
			t.Errorf("%d checkpoints stay behind", n)
		}
	})
}

// TestRewind_MeetsRetention begins a rewind while an extent is being retired: the group gets all of it or nothing.
func TestRewind_MeetsRetention(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
		queue := r.keeping(keepConsumed, 0)
		g := r.group(queue, "g")
		leaving, staying := r.sealed(queue, 5), r.sealed(queue, 7)
		r.done(g, leaving)
		r.done(g, staying)
		_, err := metadata.Change(r.t.Context(), r.meta, metadata.Seals, metadata.SealKey(leaving.ID), func(row *metadata.SealRecord) error {
			row.State, row.Version = core.ExtentRetiring, row.Version+1
			return nil
		})
		r.ok(err)
		epoch, err := r.rewindGroup(r.ctl, queue, "g", core.Start{Mode: core.StartEarliest}, 0)
		r.ok(err)
		record, _, err := metadata.Read[metadata.GroupRecord](r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, "g"), metadata.Serial)
		r.ok(err)
		if record.Epoch != epoch || record.Rewind != nil {
			t.Errorf("the group is at %d, its rewind %v; want %d", record.Epoch, record.Rewind, epoch)
		}
		done := func(e core.Extent) bool {
			consumed, err := metadata.IsConsumed(r.t.Context(), r.meta, g, e.ID, epoch, metadata.Serial)
			r.ok(err)
			return consumed
		}
		if !done(leaving) || done(staying) {
			t.Errorf("of the leaving one it has all: %v, of the other one: %v", done(leaving), done(staying))
		}
	})
}

// TestRewind_LeftBehindIsFinished finds a rewind in the group's row whose controller has died; and one that cannot be
// done leaves nothing.
func TestRewind_LeftBehindIsFinished(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, outputs: 1}, func(r *harness) {
		queue := r.queue(3, 2)
		g := r.group(queue, "g")
		e := r.sealed(queue, 5)
		r.done(g, e)
		by := membership.Host{ID: "ctl2", Roles: []string{"controller"}, Address: "ctl2:1", Run: newRun()}
		r.join(by)
		r.edit(queue, "g", func(g *metadata.GroupRecord) {
			g.Rewind = &metadata.Rewind{Epoch: 7, To: core.Start{Mode: core.StartEarliest}, Began: time.Now(), By: by.ID, Run: by.Run}
		})
		read := func() metadata.GroupRecord {
			record, _, err := metadata.Read[metadata.GroupRecord](r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, "g"), metadata.Serial)
			r.ok(err)
			return record
		}
		r.sleep(10 * time.Second)
		if now := read(); now.Rewind == nil || now.Rewind.Epoch != 7 {
			t.Errorf("somebody else's rewind was touched at once: %+v", now.Rewind)
		}
		r.leave(by.ID)
		r.eventually("it is finished", missedEvery+time.Minute, func() bool { return read().Rewind == nil })
		if epoch := read().Epoch; epoch != 8 {
			t.Errorf("the epoch is %d, want one above that of the one that was left", epoch)
		}
		r.eventually("the extent is given again", time.Minute, func() bool { return len(r.shared(e)) == 1 })
		open := r.extent(queue, 3)
		for _, s := range r.stores {
			r.kill(s.id)
		}
		if _, err := r.rewindGroup(r.ctl, queue, "g", core.Start{Mode: core.StartLatest}, 0); err == nil {
			t.Errorf("nobody knows where extent %s is", open.ID)
		}
		if now := read(); now.Rewind != nil || now.Epoch != 8 {
			t.Errorf("it left %+v, epoch %d", now.Rewind, now.Epoch)
		}
	})
}
