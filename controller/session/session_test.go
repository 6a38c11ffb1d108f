package session_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/controller/session"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/lease"
	"github.com/columbamq/columba/metadata/memory"
)

// TestSession_OneIsResponsible: controllers whose clocks differ in rate stand still, are killed, restarted and cut off
// from each other, while the metadata lose answers and replicas differ. At no time are two responsible for a key. Then
// one is within the time that is promised.
func TestSession_OneIsResponsible(t *testing.T) {
	moves := 0
	for seed := range underrace.Of[uint64](2, 6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { moves += storm(t, seed) })
		})
	}
	if moves < 25*underrace.Of(2, 6) {
		t.Errorf("keys changed hands only %d times: the test shows little", moves)
	}
}

func storm(t *testing.T, seed uint64) int {
	die := rand.New(rand.NewPCG(seed, 5))
	rows := faulty.NewReplicas(faulty.Divergence{Seed: seed, Late: 0.3, Delay: 10 * time.Second, Never: 0.2, Undecided: 0.02})
	bad := faulty.New(rows, faulty.Faults{Seed: seed, Before: 0.01, Lost: 0.1, Delay: time.Second})
	w := newWorld(t, bad)
	w.mu.lost = 0.2
	ids := []core.HostID{"a", "b", "c"}[:2+seed%2]
	rate := func() float64 { return []float64{0.95, 1, 1.05}[die.IntN(3)] }
	for _, id := range ids {
		w.start(id, rate())
	}
	end := w.watch()
	pick := func() (core.HostID, *controller) {
		w.mu.Lock()
		defer w.mu.Unlock()
		id := ids[die.IntN(len(ids))]
		return id, w.mu.all[id]
	}
	for range 40 {
		id, c := pick()
		switch die.IntN(6) {
		case 0:
			goOn := c.way.pause()
			time.Sleep(time.Duration(die.IntN(14_000)) * time.Millisecond)
			goOn()
		case 1:
			c.kill()
			time.Sleep(time.Duration(die.IntN(5_000)) * time.Millisecond)
			w.start(id, rate())
		case 2:
			c.end()
			time.Sleep(time.Duration(die.IntN(1_000)) * time.Millisecond)
			w.start(id, rate())
		case 3, 4:
			other, _ := pick()
			what := []map[[2]core.HostID]bool{w.mu.cut, w.mu.hide}[die.IntN(2)]
			w.mu.Lock()
			what[[2]core.HostID{id, other}] = !what[[2]core.HostID{id, other}]
			w.mu.Unlock()
		case 5:
			w.mu.Lock()
			w.mu.sees[id] = uint32(die.IntN(9))
			w.mu.Unlock()
		}
		time.Sleep(time.Duration(die.IntN(6_000)) * time.Millisecond)
	}
	w.mu.Lock()
	clear(w.mu.cut)
	clear(w.mu.hide)
	clear(w.mu.sees)
	w.mu.lost = 0
	w.mu.Unlock()
	calm := metadata.Store(rows)
	w.meta.Store(&calm)
	time.Sleep(20 * time.Second) // late writes have come
	within(t, "one is responsible for each key", 10*time.Second, w.settled)
	_, c := pick()
	c.kill()
	within(t, "others took over", 10*time.Second, w.settled)
	moves := end()
	for _, c := range w.mu.all {
		c.end()
	}
	bad.Close()
	return moves
}

// TestSession_Joins: the second controller takes over its part within a second or two, and gives it back when it stops.
func TestSession_Joins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		a := w.start("a", 1)
		if took := within(t, "the first is responsible for all", time.Second, w.settled); took > 500*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		end := w.watch()
		of := func(c *controller) (n int) {
			for _, key := range w.keys {
				if c.Responsible(key) {
					n++
				}
			}
			return n
		}
		counter, yields := a.counter.Load(), a.yields.Load()
		b := w.start("b", 1)
		within(t, "the second has its part", 3*time.Second, func() bool { return w.settled() && of(b) > 0 })
		if n := of(a); n < len(w.keys)/5 || n > len(w.keys)*4/5 {
			t.Errorf("the first kept %d of %d keys", n, len(w.keys))
		}
		if a.Handovers() != 1 || b.Handovers() != 0 || a.yields.Load() == yields || b.counter.Load() < counter {
			t.Errorf("hand-overs %d and %d, yields %d, counters %d and %d", a.Handovers(), b.Handovers(), a.yields.Load(), counter, b.counter.Load())
		}
		b.end()
		within(t, "the first has all again", 3*time.Second, func() bool { return of(a) == len(w.keys) })
		b = w.start("b", 1)
		within(t, "the second has its part", 3*time.Second, func() bool { return w.settled() && of(b) > 0 })
		goOn := b.way.pause()
		within(t, "the first took over from one that stands still", 10*time.Second, func() bool { return of(a) == len(w.keys) })
		time.Sleep(time.Minute)
		goOn()
		within(t, "the second has its part again", 3*time.Second, func() bool { return w.settled() && of(b) > 0 })
		if b.Handovers() == 0 {
			t.Error("the lease of the second lapsed, and no hand-over was counted")
		}
		end()
		a.end()
		b.end()
	})
}

// TestSession_OnlyAcknowledgedOnesAct: a controller that another one does not acknowledge is responsible for nothing
// until that one's lease has ended.
func TestSession_OnlyAcknowledgedOnesAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		a := w.start("a", 1)
		within(t, "the first is responsible for all", time.Second, w.settled)
		w.mu.cut[[2]core.HostID{"b", "a"}] = true
		b := w.start("b", 1)
		time.Sleep(time.Minute)
		for _, key := range w.keys {
			if b.Responsible(key) {
				t.Fatal("one that is not acknowledged is responsible")
			}
		}
		if b.Holds() || !w.settled() {
			t.Error("it holds a lease, so that the first one leaves it a part of the keys")
		}
		if _, err := a.Acknowledge(t.Context(), b.run, 99); core.CodeOf(err) != core.CodeConflict {
			t.Errorf("a term that the metadata do not show: %v", err)
		}
		if _, err := a.Acknowledge(t.Context(), core.RunID{ID: core.NewID(time.Now())}, 1); core.CodeOf(err) != core.CodeConflict {
			t.Errorf("a run that the metadata do not show: %v", err)
		}
		a.kill()
		took := within(t, "the other one took over", 11*time.Second, func() bool {
			for _, key := range w.keys {
				if !b.Responsible(key) {
					return false
				}
			}
			return true
		})
		if took < lease.TTL {
			t.Errorf("it took over after %s, while the other may have been acting", took)
		}
		b.end()
	})
}

// TestSession_AllSlotsAreTaken: one controller more than there are slots waits, says so, and takes the first one that
// is free.
func TestSession_AllSlotsAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		var all []*controller
		for i := range session.Slots {
			all = append(all, w.start(core.HostID(fmt.Sprintf("c%02d", i)), 1))
		}
		within(t, "all hold leases", 30*time.Second, func() bool {
			for _, c := range all {
				if !c.Holds() {
					return false
				}
			}
			return w.settled()
		})
		late := w.start("late", 1)
		time.Sleep(30 * time.Second)
		if late.Holds() || strings.Count(late.log.String(), "as many controllers as can be") != 1 {
			t.Errorf("holds %v, log: %s", late.Holds(), late.log.String())
		}
		all[3].end()
		within(t, "it has a lease", 10*time.Second, late.Holds)
		within(t, "one is responsible for each key", 5*time.Second, w.settled)
		late.end()
		for i, c := range all {
			if i != 3 {
				c.end()
			}
		}
	})
}

// TestSession_TakesNoLeaseBeforeItIsReady: a controller that is not ready reads the leases of the others, and leaves
// them all keys.
func TestSession_TakesNoLeaseBeforeItIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		first := w.start("a", 1)
		within(t, "the first is responsible for all", 10*time.Second, w.settled)
		ready := make(chan struct{})
		second := w.startWhen("b", 1, ready)
		time.Sleep(time.Minute)
		if second.Holds() || first.Handovers() > 0 || !w.settled() {
			t.Errorf("the one that is not ready holds a lease: %t, and the other handed over %d times", second.Holds(), first.Handovers())
		}
		if others := second.Others(); len(others) != 1 || others[0] != "a" {
			t.Errorf("it knows of %v, want a", others)
		}
		close(ready)
		within(t, "it has a lease", 10*time.Second, second.Holds)
		within(t, "one is responsible for each key", 5*time.Second, w.settled)
		first.end()
		second.end()
	})
}

// TestSession_HoldsNoLeaseBeforeTheNextSession: after a lapse, in which another controller was responsible, it says
// that it holds its lease only from when it counts the hand-over, however long it has to wait for what it did before.
func TestSession_HoldsNoLeaseBeforeTheNextSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		a, b := w.start("a", 1), w.start("b", 1)
		within(t, "each has its part", 10*time.Second, func() bool { return w.settled() && a.Holds() && b.Holds() })
		before := b.Handovers()
		busy := make(chan struct{})
		b.busy.Store(&busy)
		goOn := b.way.pause()
		within(t, "the first took over", 10*time.Second, func() bool { return w.of(a) == len(w.keys) })
		goOn()
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			if b.Holds() && b.Handovers() == before {
				t.Error("it holds its lease again, and counts no hand-over")
				break
			}
		}
		b.busy.Store(nil)
		close(busy)
		within(t, "the second has its part again", 5*time.Second, func() bool { return w.settled() && b.Holds() && b.Handovers() > before })
		a.end()
		b.end()
	})
}

// TestSession_PatienceBeginsWithTheSession: the time in which a controller waits for what it did before the session
// does not count as silence of the others.
func TestSession_PatienceBeginsWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		a, b := w.start("a", 1), w.start("b", 1)
		within(t, "each has its part", 10*time.Second, func() bool { return w.settled() && a.Holds() && b.Holds() })
		busy := make(chan struct{})
		b.busy.Store(&busy)
		goOn := b.way.pause()
		within(t, "the first took over", 10*time.Second, func() bool { return w.of(a) == len(w.keys) })
		goOn()
		time.Sleep(15 * time.Second)
		w.between("a", "b", true)
		b.busy.Store(nil)
		close(busy)
		time.Sleep(4 * time.Second)
		w.between("a", "b", false)
		within(t, "the second has its part again", 5*time.Second, func() bool { return w.settled() && w.of(b) > 0 })
		if strings.Contains(b.log.String(), "gives its session lease back") {
			t.Errorf("it did not wait for the other one: %s", b.log.String())
		}
		a.end()
		b.end()
	})
}

// BenchmarkResponsible is asked for each queue in a round.
func BenchmarkResponsible(b *testing.B) {
	s := session.New(session.Config{Meta: memory.New(), Self: "a", Run: core.RunID{ID: core.ID{1}}, Log: slog.New(slog.DiscardHandler)}, nil)
	key := core.ID{1, 2, 3}
	for b.Loop() {
		s.Responsible(key)
	}
}

// settled reports whether exactly one controller is responsible for each key.
func (w *world) settled() bool {
	for _, key := range w.keys {
		if len(w.responsible(key)) != 1 {
			return false
		}
	}
	return true
}

func within(t *testing.T, what string, limit time.Duration, ok func() bool) time.Duration {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		switch took := time.Since(began); {
		case ok():
			return took
		case took > limit:
			t.Fatalf("%s: not after %s", what, took)
		}
	}
}
