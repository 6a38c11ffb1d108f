package session_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
)

// hide has the memberships of two controllers lack each other, or not.
func (w *world) hide(a, b core.HostID, hidden bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.hide[[2]core.HostID{a, b}], w.mu.hide[[2]core.HostID{b, a}] = hidden, hidden
}

// between cuts two controllers off from each other, or not. Their memberships have both.
func (w *world) between(a, b core.HostID, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.cut[[2]core.HostID{a, b}], w.mu.cut[[2]core.HostID{b, a}] = cut, cut
}

// hosts are how many a controller sees.
func (w *world) hosts(id core.HostID, n uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.sees[id] = n
}

// of is for how many keys a controller is responsible.
func (w *world) of(c *controller) (n int) {
	for _, key := range w.keys {
		if c.Responsible(key) {
			n++
		}
	}
	return n
}

func warnings(c *controller) int { return strings.Count(c.log.String(), "level=WARN") }

// TestSession_StrangerTakesNothing: a controller starts that reaches the metadata, and no other controller: the address
// to join is wrong, or a firewall is in between. The cluster loses nothing by it, and the stranger says why it does
// nothing. When the only controller of the cluster restarts it has all keys again.
func TestSession_StrangerTakesNothing(t *testing.T) {
	for name, cut := range map[string]func(w *world){
		"membership lacks it": func(w *world) { w.hide("a", "b", true) },
		"calls fail":          func(w *world) { w.between("a", "b", true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.New())
				w.hosts("a", 5)
				a := w.start("a", 1)
				within(t, "the first is responsible for all", time.Second, w.settled)
				cut(w)
				b := w.start("b", 1)
				for range 60 {
					time.Sleep(10 * time.Second)
					if w.of(a) != len(w.keys) || b.Holds() || !b.Blocked() || a.Blocked() {
						t.Fatalf("the first has %d of %d keys, the stranger holds a lease: %v; blocked: %v, %v", w.of(a), len(w.keys), b.Holds(), a.Blocked(), b.Blocked())
					}
				}
				if n := warnings(b); n < 9 || n > 11 || !strings.Contains(b.log.String(), "controller=a") || warnings(a) > 0 {
					t.Errorf("in ten minutes the stranger warns %d times, the other one %d times", n, warnings(a))
				}
				end := w.watch()
				a.end()
				time.Sleep(5 * time.Second)
				a = w.start("a", 1)
				within(t, "the first has all again", 20*time.Second, func() bool { return w.of(a) == len(w.keys) })
				end()
				for range 60 {
					time.Sleep(10 * time.Second)
					if w.of(a) != len(w.keys) {
						t.Fatalf("after a restart the first has %d of %d keys", w.of(a), len(w.keys))
					}
				}
				a.kill()
				within(t, "the other one takes over", 11*time.Second, func() bool { return w.of(b) == len(w.keys) })
				b.end()
			})
		})
	}
}

// TestSession_EqualStrangers: nothing tells which of two controllers belongs to the cluster. One of them has all, and
// the other one says so: the first by id if both took a lease before they saw that of the other one, else the one that
// took a lease.
func TestSession_EqualStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		w.hide("a", "b", true)
		a, b := w.start("a", 1), w.start("b", 1)
		end := w.watch()
		time.Sleep(5 * time.Second)
		first, other := a, b
		if !a.Holds() {
			first, other = b, a
		}
		time.Sleep(20 * time.Second) // before, one may have all until it sees that the other one took its lease, too
		end()
		for range 60 {
			time.Sleep(10 * time.Second)
			if w.of(first) != len(w.keys) {
				t.Fatalf("%s has %d of %d keys: %s", first.id, w.of(first), len(w.keys), first.log.String())
			}
		}
		if n := warnings(other); n < 9 || warnings(first) > 1 {
			t.Errorf("in ten minutes the log of one has %d warnings, that of the other %d", n, warnings(first))
		}
		w.hide("a", "b", false)
		within(t, "each has its part", 5*time.Second, func() bool { return w.settled() && w.of(other) > 0 })
		a.end()
		b.end()
	})
}

// TestSession_LapseDuringACut: two controllers share the keys, and are cut off from each other. Each goes on with its
// part. When the lease of one lapses, or of both, one has all soon; the other one says why. After the cut both have a
// part.
func TestSession_LapseDuringACut(t *testing.T) {
	for _, both := range []bool{false, true} {
		for _, hidden := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				rows := memory.New()
				w := newWorld(t, rows)
				a, b := w.start("a", 1), w.start("b", 1)
				shared := func() bool { return w.settled() && w.of(a) > 0 && w.of(b) > 0 }
				within(t, "they share the keys", 15*time.Second, shared)
				end := w.watch()
				w.between("a", "b", true)
				w.hide("a", "b", hidden)
				for range 60 {
					if time.Sleep(time.Second); !shared() {
						t.Fatal("a cut alone takes a key from its controller")
					}
				}
				if told := warnings(a) > 0 && warnings(b) > 0; told != hidden {
					t.Errorf("logs: %s\n%s", a.log.String(), b.log.String())
				}
				if both {
					away := metadata.Store(faulty.New(rows, faulty.Faults{Before: 1}))
					w.meta.Store(&away)
					time.Sleep(10 * time.Second)
					back := metadata.Store(rows)
					w.meta.Store(&back)
				} else {
					goOn := b.way.pause()
					time.Sleep(7 * time.Second)
					goOn()
				}
				time.Sleep(25 * time.Second) // before, one may have all until it sees that the other one took its lease, too
				end()
				for i := range 600 {
					if w.of(a) != len(w.keys) {
						t.Fatalf("%d s later it has %d of %d keys (both: %t, hidden: %t), the other one %d: %s\n%s",
							i, w.of(a), len(w.keys), both, hidden, w.of(b), a.log.String(), b.log.String())
					}
					time.Sleep(time.Second)
				}
				if n := warnings(b); n < 5 {
					t.Errorf("the other one warns %d times: %s", n, b.log.String())
				}
				w.between("a", "b", false)
				w.hide("a", "b", false)
				within(t, "they share the keys again", 5*time.Second, shared)
				a.end()
				b.end()
			})
		}
	}
}

// TestSession_OneWay: a controller answers questions, and acknowledges no session, so that the other one is responsible
// for nothing. That one leaves all to it, and tries again at ever longer pauses.
func TestSession_OneWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		a := w.start("a", 1)
		within(t, "the first is responsible for all", time.Second, w.settled)
		w.mu.Lock()
		w.mu.refuse = "a"
		w.mu.Unlock()
		b := w.start("b", 1)
		less := 0
		for range 3600 {
			if time.Sleep(time.Second); w.of(a) < len(w.keys) {
				less++
			}
		}
		if n := warnings(b); n < 50 || less > 150 {
			t.Errorf("in an hour the other one warns %d times; for %d s the first had not all keys", n, less)
		}
		w.mu.Lock()
		w.mu.refuse = ""
		w.mu.Unlock()
		within(t, "each has its part", 11*time.Minute, func() bool { return w.settled() && w.of(b) > 0 })
		a.end()
		b.end()
	})
}

// TestSession_AnotherRunDoesNotAnswer: two processes have the id of one host. The newer one, which the membership
// shows, does not acknowledge a session for the older one.
func TestSession_AnotherRunDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		older := w.start("b", 1)
		within(t, "it is responsible for all", time.Second, w.settled)
		newer := w.start("b", 1)
		time.Sleep(5 * time.Second)
		if newer.Holds() {
			t.Error("two runs of a host hold leases")
		}
		goOn := older.way.pauseReads()
		a := w.start("a", 1)
		for range 4_000 {
			time.Sleep(5 * time.Millisecond)
			for _, key := range w.keys {
				if a.Responsible(key) && older.Responsible(key) {
					t.Fatal("two are responsible for a key")
				}
			}
		}
		goOn()
		a.end()
		newer.end()
		older.end()
	})
}

// TestSession_NewerRunOfTheHost: two processes have the id of one host. The others tell the newer one what they tell
// the host, so that one gets the lease. The older one gets it back when the newer one has ended.
func TestSession_NewerRunOfTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		older := w.start("b", 1)
		within(t, "it is responsible for all", time.Second, w.settled)
		time.Sleep(time.Minute)
		newer := w.start("b", 1)
		within(t, "the newer one has all", 25*time.Second, func() bool {
			if w.of(older) > 0 && w.of(newer) > 0 {
				t.Fatal("both are responsible")
			}
			return w.of(newer) == len(w.keys)
		})
		acts := func() bool { return older.Holds() || !older.Blocked() }
		if n := seconds(600, func() bool { return w.of(newer) < len(w.keys) || newer.Blocked() || acts() }); n > 0 {
			t.Errorf("the newer one has not all, or the older one may act, for %d s", n)
		}
		if n := strings.Count(older.log.String(), "level=ERROR"); n < 9 || n > 11 || warnings(newer) > 1 {
			t.Errorf("the older one says it %d times; log of the newer one:\n%s", n, newer.log.String())
		}
		newer.kill()
		within(t, "the older one has all again", 25*time.Second, func() bool { return w.of(older) == len(w.keys) && !older.Blocked() })
		older.end()
	})
}

// TestSession_YieldsAfterALapse: a controller stands still while another one acts for its keys. It yields all that it
// knew before it is responsible again.
func TestSession_YieldsAfterALapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		a := w.start("a", 1)
		within(t, "it is responsible for all", time.Second, w.settled)
		goOn := a.way.pause()
		x := w.start("x", 1)
		within(t, "the other one took over", 20*time.Second, func() bool { return w.of(x) == len(w.keys) })
		x.end()
		time.Sleep(time.Second)
		was := a.all.Load()
		goOn()
		within(t, "the first is responsible again", 5*time.Second, func() bool { return w.of(a) == len(w.keys) })
		if a.all.Load() == was {
			t.Error("it is responsible, and has not yielded all that it knew")
		}
		a.end()
	})
}
