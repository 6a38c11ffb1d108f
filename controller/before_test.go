package controller

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestStart_StoreThatLostIt: where a group begins in an extent is not asked of a store that has lost it: others know.
// While none of them is there nobody does, whether the extent has an end or not; one that is on no store is empty.
func TestStart_StoreThatLostIt(t *testing.T) {
	for name, made := range map[string]func(r *harness, queue core.QueueID) core.Extent{
		"sealed": func(r *harness, queue core.QueueID) core.Extent { return r.sealed(queue, 5) },
		"open":   func(r *harness, queue core.QueueID) core.Extent { return r.extent(queue, 5) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3}, func(r *harness) {
				e := made(r, r.queue(3, 2))
				known, _ := r.ctl.extents.Get(e.ID)
				replicas := r.replicas(e)
				before := func() (core.Seq, error) {
					at := metadata.GroupRecord{Spec: core.GroupSpec{Start: core.Start{Mode: core.StartTime, At: time.Now()}}}
					return r.ctl.before(r.t.Context(), at, known)
				}
				replicas[0].forget(e.ID)
				if n, err := before(); err != nil || n != 5 {
					t.Errorf("one store has lost it: it begins behind %d, %v; want 5", n, err)
				}
				replicas[1].forget(e.ID)
				r.kill(replicas[2].id)
				if n, err := before(); core.CodeOf(err) != core.CodeUnavailable {
					t.Errorf("two stores have lost it, one is away: it begins behind %d, %v; nobody knows", n, err)
				}
				r.restart(replicas[2])
				replicas[2].forget(e.ID)
				if n, err := before(); known.State.HasEnd() != (err != nil) || n != 0 {
					t.Errorf("it is on no store: it begins behind %d, %v", n, err)
				}
			})
		})
	}
}

// TestStart_HolderThatIsShort: a holder has lost the last records of an extent, and no inventory has shown it yet.
// Where a group begins another holder knows; while none of the others is there, the group gets more rather than less.
func TestStart_HolderThatIsShort(t *testing.T) {
	for name, start := range map[string]core.Start{"latest": {Mode: core.StartLatest, At: time.Unix(2, 0)}, "time": {Mode: core.StartTime, At: time.Unix(2, 0)}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3}, func(r *harness) {
				e := r.sealed(r.queue(3, 2), 5)
				known, _ := r.ctl.extents.Get(e.ID)
				holders := known.Holders
				r.store(holders[0].Store).with(func() { x := r.store(holders[0].Store).replicas[e.ID]; x.batches = x.batches[:2] })
				at := metadata.GroupRecord{Spec: core.GroupSpec{Start: start}}
				if n, err := r.ctl.before(r.t.Context(), at, known); err != nil || n != 5 {
					t.Errorf("it begins behind %d, %v; want 5", n, err)
				}
				for _, x := range holders[1:] {
					r.kill(x.Store)
				}
				if n, err := r.ctl.before(r.t.Context(), at, known); err != nil || n != 2 {
					t.Errorf("the others are away: it begins behind %d, %v; want 2", n, err)
				}
			})
		})
	}
}

// TestStart_StoreThatWasFencedWithoutIt: a store that has lost an open extent with its disk has an empty replica again
// since the extent is being sealed. Where a group begins others know.
func TestStart_StoreThatWasFencedWithoutIt(t *testing.T) {
	for name, start := range map[string]core.Start{"latest": {Mode: core.StartLatest}, "time": {Mode: core.StartTime, At: time.Now().Add(time.Hour)}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3}, func(r *harness) {
				e := r.extent(r.queue(3, 2), 5)
				known, _ := r.ctl.extents.Get(e.ID)
				r.store(e.Replicas[0]).edit(e.ID, func(x *fakeReplica) { x.opened, x.fenced, x.batches = false, true, nil })
				at := metadata.GroupRecord{Spec: core.GroupSpec{Start: start}}
				if n, err := r.ctl.before(r.t.Context(), at, known); err != nil || n != 5 {
					t.Errorf("it begins behind %d, %v; want 5", n, err)
				}
			})
		})
	}
}

// forget has a store lose an extent.
func (s *fakeStore) forget(id core.ExtentID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.replicas, id)
}

// TestLeft_StartAtATime: where a group begins in what is left only its holders know.
func TestLeft_StartAtATime(t *testing.T) {
	bubble(t, harnessOptions{stores: 4}, func(r *harness) {
		e, _ := r.leftOf(4, 3)
		r.allLeft(e, 3, time.Minute)
		known, _ := r.ctl.extents.Get(e.ID)
		at := metadata.GroupRecord{Spec: core.GroupSpec{Start: core.Start{Mode: core.StartTime, At: time.Now()}}}
		holders := known.Holders
		lost := r.store(holders[0].Store)
		lost.forget(e.ID)
		for _, x := range holders[1:] {
			r.kill(x.Store)
		}
		if n, err := r.ctl.before(r.t.Context(), at, known); core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("a holder has lost it, the others are away: it begins behind %d, %v; nobody knows", n, err)
		}
	})
}
