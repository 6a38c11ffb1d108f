package controller

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// TestInventory_ReplicaThatWasAwayIsCompleted: a seal went on without it.
func TestInventory_ReplicaThatWasAwayIsCompleted(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		away := r.replicas(e)[0]
		r.kill(away.id)
		_, err := r.seal(e, 5)
		r.ok(err)
		r.sleep(time.Minute)
		r.restart(away)
		r.eventually("it has all", 30*time.Second, func() bool { return len(r.row(e).Holders) == 3 })
		r.sleep(time.Second)
		r.whole(e, 5, 3)
	})
}

func TestInventory_LostRowsAreRegisteredAgain(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		r.ctl.end()
		for _, p := range []metadata.Hint{metadata.HintLive, metadata.HintOpen} {
			r.ok(r.meta.Remove(r.t.Context(), metadata.Work, metadata.HintKey(p, e.ID), time.Now(), metadata.One))
		}
		r.ok(r.meta.Remove(r.t.Context(), metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), time.Now(), metadata.One))
		r.ctl = r.startController(nil)
		r.sleep(4 * time.Minute)
		if row := r.row(e); row.State != "" {
			t.Fatalf("registered after four minutes: %+v", row)
		}
		r.eventually("it is sealed", 2*time.Minute, func() bool { return r.row(e).State == core.ExtentSealed })
		r.sleep(time.Minute)
		r.whole(e, 5, 3)
		if n := hints(r, metadata.HintLive); n != 1 {
			t.Errorf("%d hints of live extents", n)
		}
	})
}

// TestInventory_RegisteredAgainWithAllCopies: an extent was begun with two of three replicas, since a store was away,
// and its rows were lost. It gets its third copy.
func TestInventory_RegisteredAgainWithAllCopies(t *testing.T) {
	for name, lost := range map[string]bool{"its row was lost": true, "only its hints were lost": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3}, func(r *harness) {
				away := r.stores[2]
				r.sleep(time.Second)
				r.kill(away.id)
				r.sleep(5 * time.Second)
				e := r.extent(r.queue(3, 2), 5)
				if len(e.Replicas) != 2 {
					t.Fatalf("begun with %v", e.Replicas)
				}
				r.ctl.end()
				for _, p := range []metadata.Hint{metadata.HintLive, metadata.HintOpen} {
					r.ok(r.meta.Remove(r.t.Context(), metadata.Work, metadata.HintKey(p, e.ID), time.Now(), metadata.One))
				}
				if lost {
					r.ok(r.meta.Remove(r.t.Context(), metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), time.Now(), metadata.One))
				}
				r.restart(away)
				r.ctl = r.startController(nil)
				if !lost { // its writer is well, and goes on until it ends it
					r.eventually("it is known", 10*time.Minute, func() bool { _, known := r.ctl.extents.Get(e.ID); return known })
					_, err := r.seal(e, 5)
					r.ok(err)
				}
				r.eventually("it is sealed", 10*time.Minute, func() bool { return r.row(e).State == core.ExtentSealed })
				r.sleep(time.Minute)
				r.whole(e, 5, 3)
			})
		})
	}
}

// TestStrays_OfAnotherController: a controller finds an extent in stores that another one has just made, and that is
// well.
func TestStrays_OfAnotherController(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
		queue := r.queue(3, 2)
		other := r.startController(calm)
		defer other.end()
		r.sleep(2*unopenedAfter + time.Minute) // it has read the hints again, and does so next in ten minutes
		e := r.extent(queue, 5)
		r.sleep(2 * reloadEvery)
		if row := r.row(e); row.State != "" {
			t.Errorf("it was sealed: %+v", row)
		}
		if known, ok := other.extents.Get(e.ID); !ok || known.State != core.ExtentOpen {
			t.Errorf("the other controller knows %+v of it", known)
		}
	})
}

// TestInventory_HintThatCameLateIsFound: the controller before wrote it with its last breath, and it landed after this
// one had read all.
func TestInventory_HintThatCameLateIsFound(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: seldom}, func(r *harness) {
		w := r.wish(r.queue(3, 2))
		e, err := r.ctl.newExtent(r.t.Context(), w, 0)
		r.ok(err)
		r.sleep(time.Second)
		r.ok(r.ctl.writeHints(r.t.Context(), e, time.Now()))
		took := r.eventually("it is sealed", 20*time.Minute, func() bool { return r.row(e.Extent).State == core.ExtentSealed })
		if took < unopenedAfter {
			t.Errorf("sealed after %s, when its input host may still be opening it", took)
		}
		if row := r.row(e.Extent); row.L != 0 {
			t.Errorf("it ends at %d", row.L)
		}
	})
}

func TestInventory_ExtentOfAnUnknownQueueIsLeftAlone(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, edit: calm}, func(r *harness) {
		e := core.Extent{
			ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: core.QueueID{ID: core.NewID(time.Now())}, Kind: core.KindLog,
			Durability: core.DurabilityFsync, Input: "in", InputRun: newRun(), Token: core.WriterToken{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"s0"},
		}
		r.stores[0].write(e, "a")
		r.sleep(11 * time.Minute)
		x := r.stores[0].has(e.ID)
		if x == nil || x.fenced || r.row(e).State != "" {
			t.Errorf("replica %+v, row %+v", x, r.row(e))
		}
		// The rows of queues are restored.
		spec := core.QueueSpec{Path: "/t/back", Replicas: 1, MinReplicas: 1}.WithDefaults(1, 1)
		r.ok(metadata.Create(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(e.Queue), metadata.QueueRecord{ID: e.Queue, Spec: spec}))
		r.eventually("it is registered again", 2*time.Hour, func() bool { return r.row(e).State == core.ExtentSealed })
	})
}

// TestStrays_OrphansMakeRoom: those about which nothing can be done keep nobody else from being looked at.
func TestStrays_OrphansMakeRoom(t *testing.T) {
	s, now := newStrays(), time.Now()
	s.most = 2
	var ids []core.ExtentID
	for range 4 {
		id := core.ExtentID{ID: core.NewID(now)}
		ids = append(ids, id)
		s.add(catalog.Store{Host: membership.Host{ID: "s0"}}, core.Extent{ID: id}, now)
		if len(ids) == 2 {
			s.looked(ids[0], strayOrphan, now.Add(time.Hour))
		}
	}
	due := make(map[core.ExtentID]bool)
	for _, x := range s.due(now) {
		due[x.extent.ID] = true
	}
	if want := map[core.ExtentID]bool{ids[1]: true, ids[2]: true}; !maps.Equal(due, want) {
		t.Errorf("due are %v, want %v: the orphan makes room, others do not", due, want)
	}
}

func TestInventory_RetiredWhileAStoreWasAway(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		queue := r.queue(3, 2)
		e := r.sealed(queue, 5)
		away := r.replicas(e)[0]
		r.kill(away.id)
		r.sleep(10 * time.Second)
		_, err := metadata.Change(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(queue), func(q *metadata.QueueRecord) error {
			q.Spec.Status = core.StatusDeleted
			return nil
		})
		r.ok(err)
		r.eventually("it is retired", time.Minute, func() bool { return r.row(e).State == core.ExtentRetired })
		r.sleep(10 * time.Second)
		if _, live := r.ctl.extents.Get(e.ID); live {
			t.Error("a store that is away keeps a retired extent alive")
		}
		r.restart(away)
		r.eventually("its replica is removed", time.Minute, func() bool { return away.has(e.ID) == nil })
		for _, s := range r.stores {
			if s.has(e.ID) != nil {
				t.Errorf("%s still has it", s.id)
			}
		}
	})
}

// TestInventory_FencedReplica: a controller fenced a replica to seal its extent, and stopped before the row said so.
// Its input host, which never heard of the extent, asks for nothing.
func TestInventory_FencedReplica(t *testing.T) {
	bubble(t, harnessOptions{stores: 2}, func(r *harness) {
		e := r.extent(r.queue(2, 1), 0)
		r.sleep(time.Minute)
		r.replicas(e)[1].edit(e.ID, func(x *fakeReplica) { x.fenced = true })
		r.eventually("the extent is sealed", 2*time.Minute, func() bool { return r.row(e).State == core.ExtentSealed })
		if row := r.row(e); row.L != 0 || row.Reason != "fenced" {
			t.Errorf("the row is %+v", row)
		}
	})
}

// TestInventory_EndThatWasForgotten: stores lose the end that they were told, and the controller that compares their
// inventories hears of the end before or after it sees that.
func TestInventory_EndThatWasForgotten(t *testing.T) {
	two(t, harnessOptions{stores: 3}, func(r *harness, both [2]*running) {
		r.sleep(time.Minute)
		var all []core.Extent
		for range 12 {
			e := r.extentOf(both, 0, 1, 5)
			_, err := r.sealBy(both[0], e, 5)
			r.ok(err)
			r.sleep(100 * time.Millisecond)
			r.replicas(e)[0].edit(e.ID, func(x *fakeReplica) { x.sealed, x.l = false, 0 })
			all = append(all, e)
			r.sleep(5 * time.Second)
		}
		r.eventually("they are told again", 5*time.Minute, func() bool {
			return !slices.ContainsFunc(all, func(e core.Extent) bool { return !r.replicas(e)[0].has(e.ID).sealed })
		})
	})
}

// TestInventory_ReplicaThatVanished loses files without a new disk.
func TestInventory_ReplicaThatVanished(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.sealed(r.queue(3, 2), 5)
		s := r.replicas(e)[0]
		r.kill(s.id)
		s.with(func() { clear(s.replicas) })
		r.restart(s)
		r.eventually("it is found missing", time.Minute, func() bool { return r.row(e).Version > 1 })
		r.eventually("it is copied again", time.Minute, func() bool { return len(r.row(e).Holders) == 3 })
		r.sleep(time.Second)
		r.whole(e, 5, 3)
	})
}

// TestInventory_AsksForChangesOnly counts what is listed when nothing changes.
func TestInventory_AsksForChangesOnly(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, edit: seldom}, func(r *harness) {
		queue := r.queue(1, 1)
		for range 10 {
			r.sealed(queue, 2)
		}
		r.sleep(time.Minute)
		before := r.stores[0].count("/Inventory")
		r.sleep(10 * time.Minute)
		if got := r.stores[0].count("/Inventory") - before; got < 15 || got > 25 {
			t.Errorf("%d calls in ten minutes, want one each 30 s", got)
		}
	})
}

func TestMirror_DigestsFollowEveryChange(t *testing.T) {
	m := newMirror()
	m.divide(allBuckets)
	want := [core.InventoryBuckets]uint64{}
	var ids []core.ExtentID
	for i := range 1000 {
		id := core.ExtentID{ID: core.NewID(time.UnixMilli(int64(i)))}
		ids = append(ids, id)
		digest := core.ReplicaDigest(id, true, core.Seq(i), 0, false)
		m.put(id, 1)
		m.put(id, digest)
		want[core.InventoryBucket(id)] ^= digest
	}
	if m.digests != want {
		t.Fatal("digests differ after puts")
	}
	var one buckets
	one[core.InventoryBucket(ids[0])] = true
	m.clear(one)
	if _, left := m.replicas[ids[0]]; left || len(m.differing(want[:]).list()) != 1 {
		t.Error("one bucket was to be cleared")
	}
	m.clear(allBuckets)
	if len(m.replicas) != 0 || m.digests != [core.InventoryBuckets]uint64{} {
		t.Error("something is left")
	}
}

// TestInventory_WhatCouldNotBeDoneIsTriedAgain: the store does not change between, so its inventory does not show the
// replica again.
func TestInventory_WhatCouldNotBeDoneIsTriedAgain(t *testing.T) {
	bubble(t, harnessOptions{stores: 4}, func(r *harness) {
		e := r.sealed(r.queue(3, 2), 3)
		release := make(chan struct{})
		r.ctl.look(e.ID, func(context.Context) { <-release }) // somebody else looks after it
		bad := r.replicas(e)[0]
		bad.edit(e.ID, func(x *fakeReplica) { x.wrong = true })
		r.sleep(2 * time.Minute)
		close(release)
		r.eventually("it is quarantined", time.Minute, func() bool { return r.row(e).Version > 1 })
	})
}

// TestInventory_ManyReplicasThatVanished: more than are looked after at once, while nothing else changes.
func TestInventory_ManyReplicasThatVanished(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: seldom}, func(r *harness) {
		queue := r.queue(3, 2)
		const extents = looksAtOnce + 40
		for range extents {
			e := r.extent(queue, 1)
			_, err := r.seal(e, 1)
			r.ok(err)
		}
		r.sleep(2 * time.Minute)
		s := r.stores[0]
		r.kill(s.id)
		s.with(func() { clear(s.replicas) })
		r.hang(r.stores[1]) // so that looks take their time, and copies do not change the inventory
		r.hang(r.stores[2])
		r.restart(s)
		r.sleep(time.Minute)
		r.wake(r.stores[1])
		r.wake(r.stores[2])
		r.eventually("all are copied again", 10*time.Minute, func() bool {
			n := 0
			for _, e := range r.ctl.extents.Of(queue) {
				if x := s.has(e.ID); x != nil && x.sealed && e.Holds(s.id) {
					n++
				}
			}
			return n == extents
		})
	})
}

// TestRepair_ReplicaThatTakesNoCopy answers, and refuses: the copy goes to another store.
func TestRepair_ReplicaThatTakesNoCopy(t *testing.T) {
	bubble(t, harnessOptions{stores: 4}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		bad := r.replicas(e)[0]
		bad.edit(e.ID, func(x *fakeReplica) { x.batches = [][]byte{batch(1, "odd", 0)} }) // its beginning is another one
		_, err := r.seal(e, 5)
		r.ok(err)
		r.eventually("three copies", 10*time.Minute, func() bool { return len(r.row(e).Holders) == 3 })
		r.sleep(time.Minute)
		r.whole(e, 5, 3)
	})
}
