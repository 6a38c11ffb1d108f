package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// sealed makes an extent of so many records that all its replicas hold to the end.
func (r *harness) sealed(queue core.QueueID, records int) core.Extent {
	r.t.Helper()
	e := r.extent(queue, records)
	_, err := r.seal(e, core.Seq(records))
	r.ok(err)
	r.sleep(time.Second)
	r.whole(e, core.Seq(records), len(e.Replicas))
	return e
}

func TestRepair_StoreThatIsGone(t *testing.T) {
	bubble(t, harnessOptions{stores: 4, edit: seldom}, func(r *harness) {
		e := r.sealed(r.queue(3, 2), 7)
		dead, spare := r.replicas(e)[0], r.others(e)[0]
		r.kill(dead.id)
		r.sleep(4 * time.Minute)
		if x := spare.has(e.ID); x != nil {
			t.Fatalf("copied after four minutes: %+v", x)
		}
		r.sleep(90 * time.Second)
		r.whole4(e, 7, dead.id)

		r.restart(dead)
		var row metadata.SealRecord
		r.eventually("the surplus copy is removed", 2*time.Minute, func() bool { row = r.row(e); return len(row.Holders) == 3 })
		if d := row.Removal; d == nil || d.Version != row.Version || slices.Contains(row.Holders, d.Store) {
			t.Errorf("the row that drops a holder says %+v of a removal, want that of the holder dropped", d)
		}
		r.sleep(time.Minute)
		r.whole(e, 7, 3)
		copies := 0
		for _, s := range r.stores {
			if s.has(e.ID) != nil {
				copies++
			}
		}
		if copies != 3 {
			t.Errorf("%d copies", copies)
		}
	})
}

// whole4 checks three good holders beside one on a store that is gone.
func (r *harness) whole4(e core.Extent, l core.Seq, dead core.HostID) {
	r.t.Helper()
	row := r.row(e)
	if len(row.Holders) != 4 || !slices.Contains(row.Holders, dead) {
		r.t.Fatalf("holders %v, want three and %s", row.Holders, dead)
	}
	for _, id := range row.Holders {
		x := r.store(id).has(e.ID)
		if id != dead && (x == nil || !x.sealed || x.last() != l || x.version != row.Version && !slices.Contains(e.Replicas, id)) {
			r.t.Fatalf("%s has %+v, row %+v", id, x, row)
		}
	}
}

// TestRepair_OldDeletionIsRefused: a copy that was made meanwhile is not deleted by a decision from before.
func TestRepair_OldDeletionIsRefused(t *testing.T) {
	bubble(t, harnessOptions{stores: 4}, func(r *harness) {
		e := r.sealed(r.queue(3, 2), 3)
		before := r.row(e)
		spare := r.others(e)[0]
		r.kill(r.replicas(e)[0].id)
		r.eventually("it is copied", 6*time.Minute, func() bool { return len(r.row(e).Holders) == 4 })
		if err := r.ctl.replicas.Remove(r.t.Context(), before, core.Place{Store: spare.id, Disk: spare.disk}); core.CodeOf(err) != core.CodeConflict {
			t.Errorf("the store removed a copy by an old version: %v", err)
		}
		if spare.has(e.ID) == nil {
			t.Error("the copy is gone")
		}
	})
}

func TestRepair_DamagedReplica(t *testing.T) {
	for name, stores := range map[string]int{"elsewhere": 4, "in place": 3} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: stores}, func(r *harness) {
				e := r.sealed(r.queue(3, 2), 5)
				bad := r.replicas(e)[1]
				bad.edit(e.ID, func(x *fakeReplica) { x.wrong = true })
				r.eventually("it is quarantined and copied", 3*time.Minute, func() bool {
					row := r.row(e)
					return row.Version > 2 && len(row.Holders) == 3 && row.State == core.ExtentSealed
				})
				r.sleep(time.Minute)
				r.whole(e, 5, 3)
			})
		})
	}
}

func TestRepair_WipedHolder(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.sealed(r.queue(3, 2), 5)
		wiped := r.replicas(e)[2]
		r.kill(wiped.id)
		wiped.wipe()
		r.restart(wiped)
		took := r.eventually("the new disk is a holder", time.Minute, func() bool {
			row := r.row(e)
			return slices.Contains(row.HolderDisks, wiped.disk) && len(row.Holders) == 3
		})
		if took > 15*time.Second {
			t.Errorf("it took %s", took)
		}
		r.sleep(time.Second)
		r.whole(e, 5, 3)
	})
}

// TestRepair_LastCopyStays damages all but one, then the last one too.
func TestRepair_LastCopyStays(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: seldom}, func(r *harness) {
		e := r.sealed(r.queue(3, 2), 5)
		for _, s := range r.stores {
			s.edit(e.ID, func(x *fakeReplica) { x.wrong = true })
		}
		r.sleep(10 * time.Minute)
		if row := r.row(e); len(row.Holders) == 0 {
			t.Error("nobody is left to read from")
		}
		left := 0
		for _, s := range r.stores {
			if s.has(e.ID) != nil {
				left++
			}
		}
		if left != 3 {
			t.Errorf("%d of 3 damaged replicas are left: one was removed without a good copy", left)
		}
	})
}

// TestRepair_FewerThanWanted makes an extent on the two stores there are.
func TestRepair_FewerThanWanted(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		late := r.stores[2]
		r.kill(late.id)
		r.leave(late.id)
		r.sleep(5 * time.Second)
		e := r.extent(r.queue(3, 2), 5)
		if len(e.Replicas) != 2 {
			t.Fatalf("replicas %v", e.Replicas)
		}
		_, err := r.seal(e, 5)
		r.ok(err)
		r.sleep(time.Minute)
		r.whole(e, 5, 2)
		if n := hints(r, metadata.HintOpen); n != 1 {
			t.Errorf("%d hints, want one: a copy is missing", n)
		}
		r.restart(late)
		r.eventually("the third copy is made", 20*time.Second, func() bool { return len(r.row(e).Holders) == 3 })
		r.sleep(time.Second)
		r.whole(e, 5, 3)
		if n := hints(r, metadata.HintOpen); n != 0 {
			t.Errorf("%d hints of an extent that has all its copies", n)
		}
	})
}

// TestRepair_GoesOnWhereItStopped: the target hangs in the middle of a copy.
func TestRepair_GoesOnWhereItStopped(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: func(c *Config) { c.RepairPerSecond = 1 }}, func(r *harness) {
		e := r.sealed(r.queue(3, 2), 3)
		wiped := r.replicas(e)[0]
		r.kill(wiped.id)
		wiped.wipe()
		r.restart(wiped)
		r.eventually("a part is copied", time.Hour, func() bool { x := wiped.has(e.ID); return x != nil && x.last() > 0 })
		r.ctl.end()
		r.ctl = r.startController(nil)
		r.eventually("all is copied", time.Minute, func() bool { return len(r.row(e).Holders) == 3 && slices.Contains(r.row(e).HolderDisks, wiped.disk) })
		r.sleep(time.Second)
		r.whole(e, 3, 3)
	})
}

func TestRepair_CopiesBelowMinimumIsAnAlarm(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.sealed(r.queue(3, 2), 3)
		r.kill(r.replicas(e)[0].id)
		r.sleep(time.Minute)
		if n := r.value(r.ctl.metrics.below); n != 0 {
			t.Errorf("%v below the minimum with two copies", n)
		}
		r.kill(r.replicas(e)[1].id)
		r.sleep(time.Minute)
		if n := r.value(r.ctl.metrics.below); n != 1 {
			t.Errorf("%v below the minimum with one copy", n)
		}
	})
}

// TestRepair_RemovesOnlyBesideVerifiedCopies: a copy looks like one too many, but another one is damaged and nobody has
// said so yet.
func TestRepair_RemovesOnlyBesideVerifiedCopies(t *testing.T) {
	bubble(t, harnessOptions{stores: 4}, func(r *harness) {
		e := r.sealed(r.queue(3, 2), 3)
		spare := r.others(e)[0]
		r.kill(r.replicas(e)[0].id)
		r.eventually("it is copied", 6*time.Minute, func() bool { return len(r.row(e).Holders) == 4 })
		bad := r.replicas(e)[1]
		bad.with(func() { bad.replicas[e.ID].wrong = true })
		row, err := metadata.Change(r.t.Context(), r.meta, metadata.Seals, metadata.SealKey(e.ID), func(s *metadata.SealRecord) error {
			s.SetPlaces(slices.DeleteFunc(s.Places(), func(x core.Place) bool { return x.Store == spare.id }))
			return nil
		})
		r.ok(err)
		r.ctl.repairs.RemoveSurplus(r.t.Context(), e.ID, core.Place{Store: spare.id, Disk: spare.disk})
		if spare.has(e.ID) == nil {
			t.Errorf("a good copy was removed beside the holders %v", row.Holders)
		}
	})
}

// TestRepair_UrgentCopyGoesToTheNextStore: a replica that stops at the seal is the first to be tried, and does not
// answer.
func TestRepair_UrgentCopyGoesToTheNextStore(t *testing.T) {
	bubble(t, harnessOptions{stores: 4}, func(r *harness) {
		e := r.extent(r.queue(2, 2), 5)
		r.hang(r.replicas(e)[0])
		began := time.Now()
		for {
			got, err := r.seal(e, 5)
			r.ok(err)
			if len(got.Holders) == 2 {
				break
			}
			r.sleep(20 * time.Millisecond)
			if time.Since(began) > 5*time.Second {
				t.Fatalf("one copy after %s", time.Since(began))
			}
		}
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("two copies after %s", took)
		}
	})
}

// TestRepair_UrgentCopiesDoNotWaitForOthers: slow copies, that nobody is in need of, take all the room there is for
// such.
func TestRepair_UrgentCopiesDoNotWaitForOthers(t *testing.T) {
	bubble(t, harnessOptions{stores: 5, edit: func(c *Config) { c.RepairPerSecond, c.RepairsAtOnce = 1, 1 }}, func(r *harness) {
		queue := r.queue(3, 2)
		var all []core.Extent
		for range 8 {
			e := r.extent(queue, 4)
			_, err := r.seal(e, 4)
			r.ok(err)
			all = append(all, e)
		}
		r.sleep(time.Minute)
		first, second := r.replicas(all[0])[0], r.replicas(all[0])[1]
		r.kill(first.id)
		r.sleep(6 * time.Minute) // copies of what it had have begun
		r.kill(second.id)
		r.eventually("all have two copies that are there", 20*time.Second, func() bool {
			for _, e := range all {
				there := 0
				for _, id := range r.row(e).Holders {
					if id != first.id && id != second.id {
						there++
					}
				}
				if there < 2 {
					return false
				}
			}
			return true
		})
	})
}
