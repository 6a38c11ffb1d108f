package controller

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/controller/repair"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestLeft_QuarantinedHolderProvesNothing: a holder of what is left that lost a part of it is no holder any more, but
// it is none that is as its writer left it either: what it lacks may have been acknowledged.
func TestLeft_QuarantinedHolderProvesNothing(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e, others := r.givenUpInPart()
		r.allLeft(e, 3, time.Minute)
		short := others[0]
		for _, s := range r.replicas(e) {
			if s != short {
				r.kill(s.id)
			}
		}
		short.cut(e, 3)
		r.eventually("it is no holder", 5*time.Minute, func() bool { return !slices.Contains(r.row(e).Holders, short.id) })
		for _, s := range r.replicas(e) {
			if s != short {
				s.wipe()
				r.restart(s)
			}
		}
		r.sleep(3 * time.Minute)
		if row := r.row(e); row.LostFrom != 5 || r.lost() != 1 {
			t.Errorf("given up from %d, %v reported as lost; want an operator to be asked", row.LostFrom, r.lost())
		}
	})
}

// TestLeft_BeyondAnAcceptedEnd: a disk comes back that has all of an extent that was given up in part, and more than
// its end, which an operator accepted. Its records are kept: no other store has them.
func TestLeft_BeyondAnAcceptedEnd(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: seldom}, func(r *harness) {
		e, others := r.leftOf(4, 3)
		batches := others[0].has(e.ID).batches
		r.allLeft(e, 3, time.Minute)
		_, err := metadata.Change(r.t.Context(), r.meta, metadata.Seals, metadata.SealKey(e.ID), func(s *metadata.SealRecord) error { s.Forced = true; return nil })
		r.ok(err)
		first := r.replicas(e)[0]
		r.kill(first.id)
		all := slices.Clone(batches)
		for len(all) < 6 {
			all = append(all, batch(core.Seq(len(all)+1), "more", sumOf(all)))
		}
		first.with(func() {
			clear(first.removed)
			first.disk = e.Disk(first.id)
			first.replicas = map[core.ExtentID]*fakeReplica{e.ID: {tuple: e, opened: true, fenced: true, committed: 6, batches: all}}
		})
		r.restart(first)
		r.sleep(5 * time.Minute)
		if x := first.has(e.ID); x == nil || x.last() != 6 {
			t.Errorf("what only it has is gone: %+v", x)
		}
	})
}

// TestLeft_LongerOfAnotherContent: all that is left is lost, and a store turns up that goes beyond it with another
// content. Its messages are not the lost ones: an operator is asked, and may give these up.
func TestLeft_LongerOfAnotherContent(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e, _ := r.leftOf(3, 3)
		r.allLeft(e, 3, time.Minute)
		var other [][]byte
		for i := range 4 {
			other = append(other, batch(core.Seq(i+1), "other", sumOf(other)))
		}
		for _, s := range r.replicas(e) {
			r.kill(s.id)
			s.wipe()
		}
		first := r.replicas(e)[0]
		first.with(func() {
			first.replicas = map[core.ExtentID]*fakeReplica{e.ID: {tuple: e, opened: true, fenced: true, sealed: true, l: 5, batches: other}}
		})
		for _, s := range r.replicas(e) {
			r.restart(s)
		}
		r.eventually("it is reported", 2*time.Minute, func() bool { return r.value(r.ctl.metrics.lost) == 1 })
		force := func(quarantined bool) error {
			_, err := r.ctl.Host.seal(r.t.Context(), order{extent: e, reason: "operator", force: true, quarantined: quarantined})
			return err
		}
		if err := force(false); !errors.Is(err, repair.ErrQuarantined) {
			t.Errorf("forced: %v; want that store %s has more, which is another", err, first.id)
		}
		r.ok(force(true))
		if row := r.row(e); row.LostFrom != 1 || r.lost() != 0 {
			t.Errorf("given up from %d, %v reported as lost", row.LostFrom, r.lost())
		}
		if x := first.has(e.ID); x == nil || x.last() != 4 {
			t.Errorf("what it has is gone: %+v", x)
		}
	})
}

// TestLeft_ReplicaOfAnotherContent: what is left is on a store that is no replica, and the replica that would get it
// for its readers has another content. That holds up nobody: it is reported, and given up by an operator's word.
func TestLeft_ReplicaOfAnotherContent(t *testing.T) {
	bubble(t, harnessOptions{stores: 4}, func(r *harness) {
		e, others := r.sealedAloneOf(5, 5)
		stranger, batches := r.others(e)[0], others[0].has(e.ID).batches[:4]
		stranger.with(func() { stranger.replicas[e.ID] = &fakeReplica{tuple: e, fenced: true, batches: batches} })
		others[0].edit(e.ID, func(x *fakeReplica) { x.batches = [][]byte{batch(1, "other", 0)} })
		others[1].wipe()
		for _, s := range others {
			r.wake(s)
		}
		r.eventually("it is reported", 2*time.Minute, func() bool { return r.value(r.ctl.metrics.lost) == 1 })
		_, err := r.ctl.Host.seal(r.t.Context(), order{extent: e, reason: "operator", force: true})
		r.ok(err)
		r.given(r.row(e), 5)
		r.eventually("what is left is copied", 5*time.Minute, func() bool { return len(r.row(e).Holders) == 3 })
		if x := others[0].has(e.ID); x == nil || x.last() != 1 {
			t.Errorf("what it has is gone: %+v", x)
		}
	})
}
