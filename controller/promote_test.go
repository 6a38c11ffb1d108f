package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// sealedAlone makes an extent of so many records, all acknowledged, that only the first of its replicas was known to
// hold when it was sealed. That one is killed and loses its disk; the others hang.
func (r *harness) sealedAlone(records int) (e core.Extent, others []*fakeStore) {
	r.t.Helper()
	return r.sealedAloneOf(records, core.Seq(records))
}

// sealedAloneOf is sealedAlone with so many that are acknowledged.
func (r *harness) sealedAloneOf(records int, acknowledged core.Seq) (e core.Extent, others []*fakeStore) {
	r.t.Helper()
	e = r.extent(r.queue(3, 2), records)
	holder, others := r.replicas(e)[0], r.replicas(e)[1:]
	for _, s := range others {
		r.hang(s)
	}
	got, err := r.seal(e, acknowledged)
	r.ok(err)
	if !slices.Equal(got.Holders, []string{string(holder.id)}) {
		r.t.Fatalf("holders %v, want %s alone", got.Holders, holder.id)
	}
	r.kill(holder.id)
	holder.wipe()
	r.restart(holder)
	return e, others
}

// TestPromote_WholeReplicaThatWasNoHolder: the disk of the only holder is lost, and another replica has everything.
func TestPromote_WholeReplicaThatWasNoHolder(t *testing.T) {
	for name, edit := range map[string]func(x *fakeReplica){
		"as long as the extent": func(*fakeReplica) {},
		"longer":                func(x *fakeReplica) { x.batches = append(x.batches, batch(x.last()+1, "beyond", x.sum())) },
		"of another run":        func(x *fakeReplica) { x.header = newRun() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3}, func(r *harness) {
				e, others := r.sealedAlone(5)
				others[0].edit(e.ID, edit)
				others[1].edit(e.ID, func(x *fakeReplica) { x.batches = x.batches[:2] })
				for _, s := range others {
					r.wake(s)
				}
				took := r.eventually("all copies are there", time.Minute, func() bool {
					row := r.row(e)
					return len(row.Holders) == 3 && slices.Contains(row.HolderDisks, r.replicas(e)[0].disk)
				})
				if took > 15*time.Second {
					t.Errorf("it took %s", took)
				}
				r.sleep(5 * time.Second)
				r.whole(e, 5, 3)
				if lost := r.lost(); lost != 0 {
					t.Errorf("reported as lost: %v", lost)
				}
			})
		})
	}
}

// lost is how many extents the next sweep reports as lost.
func (r *harness) lost() float64 {
	r.t.Helper()
	r.sleep(15 * time.Second)
	return r.value(r.ctl.metrics.lost)
}

// TestPromote_NothingWhole: what is left is shorter, of another content, or damaged: nobody is made a holder, and it is
// reported.
func TestPromote_NothingWhole(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: seldom}, func(r *harness) {
		e, others := r.sealedAlone(5)
		others[0].edit(e.ID, func(x *fakeReplica) { x.batches = x.batches[:4] })
		others[1].edit(e.ID, func(x *fakeReplica) {
			x.batches = append(x.batches[:4:4], batch(5, "another", sumOf(x.batches[:4])))
		})
		r.wake(others[0])
		r.sleep(2 * time.Minute)
		if lost := r.lost(); lost != 0 {
			t.Errorf("reported as lost while a replica is away: %v", lost)
		}
		r.wake(others[1])
		r.eventually("it is reported", 2*time.Minute, func() bool { return r.value(r.ctl.metrics.lost) == 1 })
		r.sleep(5 * time.Minute)
		row := r.row(e)
		if row.State != core.ExtentSealed || row.L != 5 || len(row.Holders) != 1 || row.Holders[0] != e.Replicas[0] {
			t.Errorf("row %+v, want it as it was", row)
		}
		if a, b := others[0].has(e.ID), others[1].has(e.ID); a == nil || a.last() != 4 || b == nil || b.last() != 5 {
			t.Errorf("what is left was cleared away: %+v, %+v", a, b)
		}
		// The operator finds the disk after all.
		found := others[1]
		found.edit(e.ID, func(x *fakeReplica) { x.batches[4], x.wrong = batch(5, "5", sumOf(x.batches[:4])), false })
		r.eventually("it is whole again", 3*time.Minute, func() bool { return len(r.row(e).Holders) == 3 })
		r.sleep(5 * time.Second)
		r.whole(e, 5, 3)
		if lost := r.lost(); lost != 0 {
			t.Errorf("still reported as lost: %v", lost)
		}
	})
}

// TestRepair_ReplicaWithAnotherContent: a store that was away at the seal comes back with batches that are none of the
// extent's.
func TestRepair_ReplicaWithAnotherContent(t *testing.T) {
	other := func(x *fakeReplica, from int) {
		x.batches = x.batches[:from:from]
		x.batches = append(x.batches, batch(x.last()+1, "another", x.sum()))
	}
	for name, edit := range map[string]func(x *fakeReplica){
		"shorter":          func(x *fakeReplica) { other(x, 2) },
		"as long":          func(x *fakeReplica) { other(x, 4) },
		"longer":           func(x *fakeReplica) { other(x, 4); x.batches = append(x.batches, batch(6, "more", x.sum())) },
		"first is another": func(x *fakeReplica) { other(x, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3}, func(r *harness) {
				e := r.extent(r.queue(3, 2), 5)
				away := r.replicas(e)[1]
				r.kill(away.id)
				_, err := r.seal(e, 5)
				r.ok(err)
				r.sleep(10 * time.Second)
				away.edit(e.ID, edit)
				r.restart(away)
				r.eventually("it is copied anew", 10*time.Minute, func() bool { return len(r.row(e).Holders) == 3 })
				r.sleep(5 * time.Second)
				r.whole(e, 5, 3)
			})
		})
	}
}

// TestRepair_CommittedBeyondTheEndIsKept: the end of an extent cuts off what a replica knows to be acknowledged. Its
// bytes are evidence, also when all copies are there without it, until an operator accepts the loss.
func TestRepair_CommittedBeyondTheEndIsKept(t *testing.T) {
	for name, stores := range map[string]int{"a copy is missing": 3, "all copies are there": 4} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: stores, edit: calm}, func(r *harness) {
				e := r.extent(r.queue(3, 2), 5)
				away := r.replicas(e)[1]
				r.kill(away.id)
				_, err := r.seal(e, 5)
				r.ok(err)
				r.sleep(6 * time.Minute)
				if row := r.row(e); len(row.Holders) != stores-1 {
					t.Fatalf("holders %v", row.Holders)
				}
				away.edit(e.ID, func(x *fakeReplica) {
					x.batches = append(x.batches, batch(6, "6", x.sum()))
					x.committed = 6
				})
				r.restart(away)
				r.sleep(10 * time.Minute)
				if x := away.has(e.ID); x == nil || x.last() != 6 {
					t.Errorf("it has %+v", x)
				}
				_, err = r.ctl.Host.seal(r.t.Context(), order{extent: e, floor: 6, force: true})
				r.ok(err)
				r.eventually("it is copied anew, or removed", 5*time.Minute, func() bool { x := away.has(e.ID); return x == nil || x.sealed })
				r.sleep(time.Minute)
				r.whole(e, 5, 3)
			})
		})
	}
}

// TestRepair_StoreThatIsBackIsWorthATry: tries that failed while nobody was there hold up nothing once a store answers.
func TestRepair_StoreThatIsBackIsWorthATry(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		holder, others := r.replicas(e)[0], r.replicas(e)[1:]
		for _, s := range others {
			r.kill(s.id)
		}
		_, err := r.seal(e, 5)
		r.ok(err)
		r.kill(holder.id)
		for range 240 { // its writer waits for a second copy
			r.seal(e, 5)
			r.sleep(250 * time.Millisecond)
		}
		for i, s := range others {
			r.restart(s)
			if took := r.eventually("it is a holder", time.Minute, func() bool { return len(r.row(e).Holders) == 2+i }); took > 2*time.Second {
				t.Errorf("%s is a holder after %s", s.id, took)
			}
		}
	})
}
