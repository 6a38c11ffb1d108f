package outputhost

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
)

// twoControllers runs f with a host whose one share ctl has listed, beside these other hosts.
func twoControllers(t *testing.T, ids []string, f func(t *testing.T, x *leasedHarness)) {
	synctest.Test(t, func(t *testing.T) { runLeased(t, others(ids...), f) })
}

// another is a group whose shares a controller lists and names.
func (x *leasedHarness) another(c *fakeController) *group {
	x.t.Helper()
	_, a := x.group()
	x.send(c.set(queueOf(a), a))
	g := x.groupsOf(queueOf(a))[0]
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.mu.shares {
		r := dispatch.Records{Base: 1, Offsets: make([]uint32, 1001), Bytes: make([]byte, 1000)}
		for i := range r.Offsets {
			r.Offsets[i] = uint32(i)
		}
		if err := s.rules.Offer(r, x.deps.Now()); err != nil {
			x.t.Fatal(err)
		}
	}
	return g
}

// responsible makes both controllers able to answer, and says which one is responsible for a queue.
func (x *leasedHarness) responsible(c *fakeController, queue core.QueueID) {
	for _, o := range []*fakeController{x.ctl, x.ctl2} {
		o.ready.Store(true)
		o.mu.Lock()
		o.mu.foreign = map[core.QueueID]bool{queue: o != c}
		o.mu.Unlock()
	}
}

// TestLeases_CutOffFromTheListsController stops within the lease, although another controller renews. It goes on when
// that one lists the queue, and not because the first one answers again.
func TestLeases_CutOffFromTheListsController(t *testing.T) {
	twoControllers(t, []string{"ctl", "ctl2", "out2"}, func(t *testing.T, x *leasedHarness) {
		other := x.another(x.ctl2)
		x.responsible(x.ctl2, x.g.queue)
		time.Sleep(3 * time.Second)
		if !x.gives() {
			t.Fatal("in contact it hands out nothing")
		}
		x.set(x.mu.silent, "ctl")
		for end := time.Now().Add(dispatch.OwnerLease); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if !x.givesOf(other) {
				t.Fatal("nothing is handed out of a queue of the other controller")
			}
		}
		if x.givesWithin(10 * time.Second) {
			t.Error("it hands out, cut off from the controller that lists the queue")
		}
		x.set(x.mu.silent)
		if x.givesWithin(10 * time.Second) {
			t.Error("it hands out of a queue that its controller does not name any more")
		}
		if x.list(x.ctl2, x.g); !x.gives() || !x.givesOf(other) {
			t.Error("it does not go on at once when another controller lists the queue")
		}
	})
}

// TestLeases_ListsControllerIsKilled: its machine refuses connections. The renewals of all others are enough, and
// nothing else is.
func TestLeases_ListsControllerIsKilled(t *testing.T) {
	for _, c := range []struct {
		name   string
		others []string
		silent []string
		goesOn bool
	}{
		{"the other one renews", []string{"ctl", "ctl2", "out2"}, nil, true},
		{"a third one is silent", []string{"ctl", "ctl2", "ctl3", "out2"}, []string{"ctl3"}, false},
		{"a third one refuses, too", []string{"ctl", "ctl2", "ctl3", "out2"}, nil, true},
		{"all others refuse", []string{"ctl", "ctl3", "out2"}, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			twoControllers(t, c.others, func(t *testing.T, x *leasedHarness) {
				time.Sleep(3 * time.Second)
				x.set(x.mu.refused, "ctl", "ctl3")
				x.mu.Lock()
				for _, id := range c.silent {
					x.mu.silent[id+":1"] = true
				}
				x.mu.Unlock()
				if !c.goesOn {
					time.Sleep(dispatch.OwnerLease)
					if x.givesWithin(10 * time.Second) {
						t.Error("it hands out though a controller may take over that it does not reach")
					}
					return
				}
				for range 300 {
					if !x.gives() {
						t.Fatal("nothing is handed out")
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		})
	}
}

// TestLeases_ListsControllerHangs: it may go on at any time and count on what it knew. Its queues wait for it, or for
// the list of another one.
func TestLeases_ListsControllerHangs(t *testing.T) {
	twoControllers(t, []string{"ctl", "ctl2", "out2"}, func(t *testing.T, x *leasedHarness) {
		again := x.another(x.ctl)
		x.responsible(x.ctl2, x.g.queue)
		time.Sleep(3 * time.Second)
		x.ctl.hung.Store(true)
		time.Sleep(dispatch.OwnerLease)
		if x.givesWithin(10*time.Second) || x.givesOf(again) {
			t.Fatal("it hands out though the controller of the lists hangs")
		}
		if x.list(x.ctl2, x.g); !x.gives() || x.givesOf(again) {
			t.Error("it does not go on with the queue, and only with it, that another controller lists")
		}
		x.ctl.hung.Store(false)
		time.Sleep(2 * beatEvery)
		if !x.gives() || !x.givesOf(again) {
			t.Error("it does not go on with the queue that the controller names again")
		}
	})
}

// TestLeases_QueuesAreHandedOver: the count changes. A queue that is not named any more stops with the lease of before,
// and the others do not.
func TestLeases_QueuesAreHandedOver(t *testing.T) {
	twoControllers(t, []string{"ctl", "ctl2", "out2"}, func(t *testing.T, x *leasedHarness) {
		stays := x.another(x.ctl)
		x.responsible(x.ctl2, x.g.queue)
		x.ctl.counted.Store(7)
		time.Sleep(beatEvery + 10*time.Millisecond) // the first count is asked for, too
		x.list(x.ctl, x.g)
		for range 20 {
			if time.Sleep(100 * time.Millisecond); !x.gives() || !x.givesOf(stays) {
				t.Fatal("nothing is handed out while the count stays")
			}
		}
		x.ctl.counted.Add(1)
		began, last := time.Now(), time.Duration(0)
		for range 100 {
			if !x.givesOf(stays) {
				t.Fatalf("%s after the hand-over nothing is handed out of a queue that stays", time.Since(began))
			}
			if x.gives() {
				last = time.Since(began)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if last > dispatch.OwnerLease || last < dispatch.OwnerLease-beatEvery-100*time.Millisecond {
			t.Errorf("of a queue that was handed over something is handed out for %s, want %s from the last renewal before", last, dispatch.OwnerLease)
		}
		if x.list(x.ctl2, x.g); !x.gives() {
			t.Error("it does not go on when the other controller lists the queue")
		}
	})
}

// TestLeases_ListBeforeTheEndOfTheOldLease: there is no pause when the other controller lists the queue in time.
func TestLeases_ListBeforeTheEndOfTheOldLease(t *testing.T) {
	twoControllers(t, []string{"ctl", "ctl2", "out2"}, func(t *testing.T, x *leasedHarness) {
		x.responsible(x.ctl2, x.g.queue)
		time.Sleep(2 * time.Second)
		x.ctl.counted.Add(1)
		for i := range 100 {
			if i == 15 {
				x.list(x.ctl2, x.g)
			}
			if !x.gives() {
				t.Fatalf("nothing is handed out after %d00 ms", i)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// TestLeases_AnotherRunAnswers for the controller that listed the queue, which was started again: it goes on while all
// controllers renew, and no longer.
func TestLeases_AnotherRunAnswers(t *testing.T) {
	twoControllers(t, []string{"ctl", "ctl2", "out2"}, func(t *testing.T, x *leasedHarness) {
		x.responsible(x.ctl2, x.g.queue)
		x.ctl.again.Store(true)
		x.ctl.lost.Store(true)
		for range 50 {
			if !x.gives() {
				t.Fatal("nothing is handed out though both controllers promise to move nothing")
			}
			time.Sleep(100 * time.Millisecond)
		}
		x.set(x.mu.silent, "ctl2")
		time.Sleep(dispatch.OwnerLease)
		if x.givesWithin(5 * time.Second) {
			t.Error("it hands out though a controller may take over that it does not reach")
		}
	})
}
