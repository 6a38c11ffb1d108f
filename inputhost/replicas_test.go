package inputhost

import (
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// restart starts a killed store again; membership shows its new run.
func (r *harness) restart(s *store) {
	r.t.Helper()
	s.up()
	hosts := r.members.Hosts("")
	for i := range hosts {
		if hosts[i].ID == s.id {
			hosts[i].Run = core.RunID{ID: core.NewID(time.Now())}
		}
	}
	if err := r.members.Set(hosts); err != nil {
		r.t.Fatal(err)
	}
}

// forget has membership show a store no more.
func (r *harness) forget(s *store) {
	r.t.Helper()
	hosts := slices.DeleteFunc(r.members.Hosts(""), func(h membership.Host) bool { return h.ID == s.id })
	if err := r.members.Set(hosts); err != nil {
		r.t.Fatal(err)
	}
}

// fewest is of the replicas of the open extents.
func (r *harness) fewest(path string) int {
	open := r.open(path)
	if len(open) == 0 {
		return 0
	}
	return len(slices.MinFunc(open, func(a, b core.Extent) int { return len(a.Replicas) - len(b.Replicas) }).Replicas)
}

// sealed is how many extents have an end.
func (c *controller) sealed() int {
	c.sealMu.Lock()
	defer c.sealMu.Unlock()
	return len(c.seals)
}

// A killed store that is back is used again within seconds, without a pause for publishers, and the extents made
// meanwhile on fewer stores end.
func TestHost_AllReplicasAgain(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		p := r.publisher("p", path)
		p.load(2*time.Second, 10*time.Millisecond)
		r.stores[1].kill()
		p.load(2*time.Second, 10*time.Millisecond)
		if n := r.fewest(path); n != 2 {
			t.Fatalf("%d replicas without the store, want 2", n)
		}
		sealed := r.ctl.sealed()
		r.restart(r.stores[1])
		p.load(backAfter+backSpread+time.Second, 10*time.Millisecond)
		p.flush()
		r.all(p.n)
		if n := r.fewest(path); n != 3 {
			t.Errorf("%d replicas with the store back, want 3", n)
		}
		if n := r.ctl.sealed() - sealed; n != 2 {
			t.Errorf("%d extents were sealed, want the two with too few replicas", n)
		}
		r.gapUpTo(100 * time.Millisecond)
	})
}

// A store that is there again and takes nothing has each extent replaced once, not for ever.
func TestHost_FewReplicasAreLetBe(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		p := r.publisher("p", path)
		p.load(2*time.Second, 10*time.Millisecond)
		r.stores[1].kill()
		p.load(2*time.Second, 10*time.Millisecond)
		r.ctl.set(func() { r.ctl.n = 2 })
		sealed := r.ctl.sealed()
		r.restart(r.stores[1])
		p.load(time.Minute, 100*time.Millisecond)
		p.flush()
		r.all(p.n)
		if n := r.ctl.sealed() - sealed; n > 2 {
			t.Errorf("%d extents were sealed in a minute, want the two that were open", n)
		}
	})
}

func TestStores_Spare(t *testing.T) {
	w := newWatch()
	run := func() core.RunID { return core.RunID{ID: core.NewID(w.now)} }
	hosts := []membership.Host{{ID: "a", Run: run()}, {ID: "b", Run: run()}, {ID: "c", Run: run()}}
	w.members(hosts)
	two := core.Extent{Replicas: []core.HostID{"a", "b"}}
	w.pass(time.Second, nil)
	w.failed(w.now, "c", core.Errorf(core.CodeUnavailable, "the link broke"))
	w.pass(time.Second, nil)
	opened := w.now
	expect := func(want bool, when string) {
		t.Helper()
		if got := w.spare(w.now, opened, two); got != want {
			t.Errorf("%s: %t, want %t", when, got, want)
		}
	}
	expect(false, "while the third is avoided")
	w.pass(avoidBroken-time.Second+tickEvery, nil)
	expect(false, "a moment after it is not avoided any more")
	w.pass(backAfter, nil)
	expect(true, "a while after")
	opened = w.now
	expect(false, "for an extent that was opened since")
	w.members(hosts[:2])
	w.pass(time.Minute, nil)
	opened = w.began
	expect(false, "without a third")
	hosts[2].Run = run()
	w.members(hosts)
	w.pass(backAfter+tickEvery, nil)
	opened = w.now.Add(-time.Hour)
	expect(true, "with a third that came anew")
	three := core.Extent{Replicas: []core.HostID{"a", "b", "c"}}
	if w.spare(w.now, opened, three) {
		t.Error("a store to spare for an extent on all of them")
	}
}
