package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/controller/repair"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// leftOf makes an extent of five records of which so many are left on the second of its replicas, and one fewer on the
// third; so many were acknowledged. The rest was given up.
func (r *harness) leftOf(left int, acknowledged core.Seq) (e core.Extent, others []*fakeStore) {
	r.t.Helper()
	e, others = r.sealedAloneOf(5, acknowledged)
	others[0].cut(e, left)
	others[1].cut(e, left-1)
	for _, s := range others {
		r.wake(s)
	}
	r.eventually("what is lost is given up", 2*time.Minute, func() bool { return r.row(e).LostFrom > 0 })
	r.given(r.row(e), core.Seq(left+1))
	return e, others
}

// allLeft waits until so many holders have all that is left, and checks that they do.
func (r *harness) allLeft(e core.Extent, holders int, most time.Duration) {
	r.t.Helper()
	r.eventually("what is left has all its copies", most, func() bool {
		row := r.row(e)
		return len(row.Holders) == holders && !slices.ContainsFunc(row.Places(), func(x core.Place) bool { return r.store(x.Store).disk != x.Disk })
	})
	row := r.row(e)
	end, sum, some := row.HeldTo()
	if !some || row.L != 5 {
		r.t.Fatalf("row %+v, want that something is left", row)
	}
	for _, id := range row.Holders {
		x := r.store(id).has(e.ID)
		if x == nil || x.wrong || !x.sealed || x.l != 5 || x.last() < end || sumOf(x.batches[:end]) != sum {
			r.t.Errorf("holder %s has %+v, the row says %+v", id, x, row)
		}
	}
}

// TestLeft_IsCopied: what is left of an extent that was given up gets as many copies as others, and gets them again
// when disks are lost.
func TestLeft_IsCopied(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e, others := r.leftOf(4, 3)
		r.allLeft(e, 3, time.Minute)
		r.sleep(15 * time.Second)
		if below, lost := r.value(r.ctl.metrics.below), r.value(r.ctl.metrics.lost); below != 0 || lost != 0 {
			t.Errorf("reported: %v below the minimum, %v lost", below, lost)
		}
		for _, s := range others { // one after another, so that at last only copies are left
			r.kill(s.id)
			s.wipe()
			r.restart(s)
			r.allLeft(e, 3, time.Minute)
		}
		if row := r.row(e); !row.Unacked || row.Removed == nil {
			t.Errorf("row %+v: nothing was ever acknowledged by its end", row)
		}
		r.given(r.row(e), 5)
		if got, err := r.seal(e, 3); err != nil || got.L != 5 || len(got.Holders) != 0 {
			t.Errorf("its writer gets %v, %v; want that nobody has it to its end", got, err)
		}
	})
}

// TestLeft_DamagedHolderIsReplaced like that of any extent.
func TestLeft_DamagedHolderIsReplaced(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e, others := r.leftOf(4, 3)
		r.allLeft(e, 3, time.Minute)
		for name, edit := range map[string]func(*fakeReplica){
			"damaged": func(x *fakeReplica) { x.wrong = true }, "shorter": func(x *fakeReplica) { x.batches = x.batches[:2] },
			"of another content": func(x *fakeReplica) { x.batches[3] = batch(4, "other", sumOf(x.batches[:3])) },
		} {
			before := r.row(e).Version
			others[0].edit(e.ID, edit)
			if name == "of another content" { // what it has is kept
				r.eventually(name, time.Minute, func() bool { return len(r.row(e).Holders) == 2 })
				others[0].edit(e.ID, func(x *fakeReplica) { x.batches = x.batches[:3] })
			}
			r.eventually(name+": it is none any more", time.Minute, func() bool { return r.row(e).Version > before })
			r.allLeft(e, 3, 2*time.Minute)
		}
	})
}

// TestLeft_BetterCopyComesBack: a disk that has all of the extent counts as a copy of what is left, and keeps what it
// has.
func TestLeft_BetterCopyComesBack(t *testing.T) {
	bubble(t, harnessOptions{stores: 4, edit: seldom}, func(r *harness) {
		e, others := r.sealedAloneOf(5, 3)
		batches := others[0].has(e.ID).batches
		others[0].cut(e, 4)
		others[1].cut(e, 3)
		for _, s := range others {
			r.wake(s)
		}
		r.eventually("what is lost is given up", 2*time.Minute, func() bool { return r.row(e).LostFrom > 0 })
		r.allLeft(e, 3, time.Minute)
		first := r.replicas(e)[0]
		r.kill(first.id)
		first.with(func() {
			clear(first.removed)
			first.disk = e.Disk(first.id)
			first.replicas = map[core.ExtentID]*fakeReplica{e.ID: {tuple: e, opened: true, fenced: true, sealed: true, l: 5, batches: batches}}
		})
		r.restart(first)
		r.allLeft(e, 3, 2*time.Minute)
		if x := first.has(e.ID); x == nil || x.last() != 5 || !slices.Contains(r.row(e).Holders, first.id) {
			t.Fatalf("it has %+v now, holders %v", x, r.row(e).Holders)
		}
		for _, s := range others { // it is the only one that has what is left
			r.kill(s.id)
			s.wipe()
			r.restart(s)
		}
		r.allLeft(e, 3, time.Minute)
		r.kill(first.id)
		r.eventually("a copy more", 10*time.Minute, func() bool { return len(r.row(e).Holders) == 4 })
		r.restart(first)
		r.sleep(5 * time.Minute)
		if x := first.has(e.ID); x == nil || x.last() != 5 {
			t.Errorf("what only it has was removed as surplus: %+v", x)
		}
		r.given(r.row(e), 5)
	})
}

// TestLeft_AnotherContentIsKept: no end proves which of two replicas is right, so none is cleared away; the copy goes
// to another store.
func TestLeft_AnotherContentIsKept(t *testing.T) {
	bubble(t, harnessOptions{stores: 4}, func(r *harness) {
		e, others := r.sealedAloneOf(5, 2)
		others[0].cut(e, 4)
		others[1].edit(e.ID, func(x *fakeReplica) { x.batches = append(x.batches[:2:2], batch(3, "other", sumOf(x.batches[:2]))) })
		other := slices.Clone(others[1].has(e.ID).batches)
		for _, s := range others {
			r.wake(s)
		}
		r.eventually("what is lost is given up", 2*time.Minute, func() bool { return r.row(e).LostFrom > 0 })
		r.allLeft(e, 3, 5*time.Minute)
		if x := others[1].has(e.ID); x == nil || sumOf(x.batches) != sumOf(other) || slices.Contains(r.row(e).Holders, others[1].id) {
			t.Errorf("it has %+v now, holders %v", x, r.row(e).Holders)
		}
	})
}

// TestLeft_IsLostInTurn: all stores with what is left lose it, or a part. The loss is reported, and an operator gives
// the messages up once more.
func TestLeft_IsLostInTurn(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e, _ := r.leftOf(4, 3)
		r.allLeft(e, 3, time.Minute)
		all := r.replicas(e)
		for _, s := range all[1:] {
			r.kill(s.id)
			s.wipe()
		}
		all[0].cut(e, 3)
		force := func() error {
			_, err := r.ctl.Host.seal(r.t.Context(), order{extent: e, reason: "operator", force: true})
			return err
		}
		r.sleep(10 * time.Second)
		if err := force(); core.CodeOf(err) != core.CodeConflict {
			t.Errorf("two stores may come back: %v", err)
		}
		for _, s := range all[1:] {
			r.restart(s)
		}
		r.eventually("it is reported", 2*time.Minute, func() bool { return r.value(r.ctl.metrics.lost) == 1 })
		r.given(r.row(e), 5)
		for range 2 {
			r.ok(force())
		}
		r.given(r.row(e), 4)
		r.allLeft(e, 3, time.Minute)
		if lost := r.lost(); lost != 0 {
			t.Errorf("still reported as lost: %v", lost)
		}
	})
}

// TestLeft_NotCopied: where nothing is left, or nobody noted what, nothing is to be done.
func TestLeft_NotCopied(t *testing.T) {
	for name, edit := range map[string]func(*metadata.SealRecord){
		"nothing is left": func(s *metadata.SealRecord) { s.LostFrom = 1 },
		"a row of before": func(s *metadata.SealRecord) { s.LeftChecksum = nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3, edit: seldom}, func(r *harness) {
				e, others := r.sealedAloneOf(5, 3)
				_, err := metadata.Change(r.t.Context(), r.meta, metadata.Seals, metadata.SealKey(e.ID), func(s *metadata.SealRecord) error {
					err := s.GiveUp(5, sumOf(others[0].has(e.ID).batches[:4]), time.Now())
					edit(s)
					return err
				})
				r.ok(err)
				holders := r.row(e).Holders
				for _, s := range others {
					s.cut(e, 4)
					r.wake(s)
				}
				r.sleep(5 * time.Minute)
				if row := r.row(e); !slices.Equal(row.Holders, holders) {
					t.Errorf("holders %v, were %v", row.Holders, holders)
				}
				if lost, below := r.lost(), r.value(r.ctl.metrics.below); lost != 0 || below != 0 {
					t.Errorf("reported: %v lost, %v below the minimum", lost, below)
				}
			})
		})
	}
}

// TestLeft_QuarantinedCopy: a copy that was found damaged may have what is given up. An operator is told, and has to
// say so once more.
func TestLeft_QuarantinedCopy(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		holder, others := r.replicas(e)[0], r.replicas(e)[1:]
		for _, s := range others {
			s.cut(e, 3)
			r.hang(s)
		}
		_, err := r.seal(e, 5)
		r.ok(err)
		holder.edit(e.ID, func(x *fakeReplica) { x.wrong = true })
		for _, s := range others {
			r.wake(s)
		}
		r.eventually("it is reported", 2*time.Minute, func() bool { return r.value(r.ctl.metrics.lost) == 1 })
		force := func(quarantined bool) error {
			_, err := r.ctl.Host.seal(r.t.Context(), order{extent: e, reason: "operator", force: true, quarantined: quarantined})
			return err
		}
		if err := force(false); !errors.Is(err, repair.ErrQuarantined) || core.CodeOf(err) != core.CodeConflict || !strings.Contains(err.Error(), string(holder.id)+" up to 5, damaged") {
			t.Errorf("forced: %v", err)
		}
		if row, x := r.row(e), holder.has(e.ID); row.LostFrom != 0 || x == nil || x.last() != 5 {
			t.Errorf("row %+v, the damaged copy is %+v", row, x)
		}
		r.ok(force(true))
		r.given(r.row(e), 4)
		r.allLeft(e, 3, 2*time.Minute)
		r.ok(force(false))
	})
}
