package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestOutage_OutageOfWorkersThatNack fails all for an hour, with first attempts left to fail all the time: nothing
// dies, and afterwards only what is bad does, after exactly the attempts that count.
func TestOutage_OutageOfWorkersThatNack(t *testing.T) {
	for _, most := range []int{2, 3, 10} {
		g, s := newShare(t, core.GroupSpec{MaxDeliveries: most}, 1000)
		w := newWorkers(t, g)
		w.until(start.Add(time.Hour), all)
		w.open(true)
		if len(w.dead) > 0 {
			t.Fatalf("max %d: the outage made %d dead letters", most, len(w.dead))
		}
		if n := len(w.given); n < 40 || n > 500 {
			t.Errorf("max %d: %d messages were tried in an hour of probes", most, n)
		}
		if _, since := g.Breaker(); since != start || g.Counters().Opened != 1 {
			t.Errorf("max %d: open since %s, opened %d times", most, since.Sub(start), g.Counters().Opened)
		}
		w.until(start.Add(2*time.Hour), tenth)
		w.onlyTheBad(1000, tenth)
		w.open(false)
		if !s.Done(1000) {
			t.Errorf("max %d: %+v is left", most, g.Depth())
		}
	}
}

// TestOutage_OutageWithoutABacklog has messages come one at a time, slower than they could fail: an exhausted one waits
// for five seconds, so of those that come at two a second none dies before the breaker opens; of slower ones those do
// that failed before, nine at most.
func TestOutage_OutageWithoutABacklog(t *testing.T) {
	for _, every := range []time.Duration{5 * time.Millisecond, 33 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond, time.Second, 4 * time.Second} {
		g, s := newShare(t, core.GroupSpec{MaxDeliveries: 5}, 0)
		w := newWorkers(t, g)
		const good, n = 10, 200
		for i := range n {
			offerAt(t, s, 1, w.now, w.now)
			w.until(w.now.Add(every), func(seq core.Seq) bool { return i >= good })
		}
		most := 0 // the others wait when it opens
		for i := range breakerFew - 1 {
			if time.Duration(i)*every+routes[DeadLetterQueue].patience <= (breakerFew-1)*every {
				most++
			}
		}
		dead := len(w.dead)
		if dead > most {
			t.Errorf("a message every %s: an outage made %d dead letters, want at most %d: %v", every, dead, most, w.dead)
		}
		w.until(w.now.Add(10*time.Minute), nothing)
		if !s.Done(n) || len(w.dead) != dead {
			t.Errorf("a message every %s: after the outage done up to %d, %d dead, before %d", every, s.Frontier(), len(w.dead), dead)
		}
	}
}

// TestOutage_TwoBadMessages die soon, although nothing succeeds beside them.
func TestOutage_TwoBadMessages(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 5}, 0)
	w := newWorkers(t, g)
	offerAt(t, s, 2, w.now, w.now)
	w.until(start.Add(2*routes[DeadLetterQueue].patience), all)
	if len(w.dead) != 2 || w.dead[1] != 5 || w.dead[2] != 5 {
		t.Errorf("dead are %v, want both after 5 attempts", w.dead)
	}
}

// TestOutage_OutageOfWorkersThatHang has all locks run out for many lock timeouts, when everything had been handed out
// before.
func TestOutage_OutageOfWorkersThatHang(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, LockTimeout: 10 * time.Second}, 100)
	w := newWorkers(t, g)
	take(g, 1000, start)
	for range 8 {
		w.now = w.now.Add(10 * time.Second)
		g.Tick(w.now)
		save(s, w.now)
		take(g, 1000, w.now)
		w.open(true)
		if dead := takeDead(g, 100); dead != nil {
			t.Fatalf("%d dead letters after %s", len(dead), w.now.Sub(start))
		}
	}
	w.until(start.Add(5*time.Minute), tenth)
	w.open(false)
	w.onlyTheBad(100, tenth)
	for seq, attempts := range w.dead {
		if w.given[seq] != 2 {
			t.Errorf("seq %d died after %d attempts, %d of them after the outage; want 2 of these", seq, attempts, w.given[seq])
		}
	}
}

// TestOutage_TailOfPoison leaves nothing but messages that fail: they had failed before, while others succeeded.
func TestOutage_TailOfPoison(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 500)
	w := newWorkers(t, g)
	w.until(start.Add(routes[DeadLetterQueue].patience), tenth)
	w.open(false)
	w.onlyTheBad(500, tenth)
	for seq, attempts := range w.dead {
		if attempts != 10 || w.given[seq] != 10 {
			t.Errorf("seq %d died after %d attempts, counted %d; want 10", seq, w.given[seq], attempts)
		}
	}
	if !s.Done(500) || g.Counters().Opened != 0 {
		t.Errorf("%+v is left, opened %d times", g.Depth(), g.Counters().Opened)
	}
}

// TestOutage_TailOfFreshPoison is what cannot be told from an outage: bad messages only, at the end, that never were
// seen with others. It takes its time, and they die.
func TestOutage_TailOfFreshPoison(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 3, LockTimeout: 5 * time.Second}, 150)
	w := newWorkers(t, g)
	bad := func(seq core.Seq) bool { return seq > 100 }
	w.until(start.Add(30*time.Second), bad)
	w.open(true)
	if len(w.dead) > 0 {
		t.Fatalf("%d died at once: that might have been an outage", len(w.dead))
	}
	w.until(start.Add(3*time.Minute), bad)
	w.onlyTheBad(150, bad)
	if !s.Done(150) {
		t.Errorf("%+v is left", g.Depth())
	}
}

// TestOutage_FewMessages opens nothing: with fewer than twenty nothing is known.
func TestOutage_FewMessages(t *testing.T) {
	g, _ := newShare(t, core.GroupSpec{}, breakerLeast-1)
	w := newWorkers(t, g)
	w.until(start.Add(routes[DeadLetterQueue].patience-1), all)
	w.onlyTheBad(breakerLeast-1, nothing)
	w.until(start.Add(routes[DeadLetterQueue].patience), all)
	w.onlyTheBad(breakerLeast-1, all)
}

// TestOutage_OutageOfAQuietGroup has one message after another arrive while all workers nack at once: the first ones
// have used up all attempts but one before it is known that nothing succeeds.
func TestOutage_OutageOfAQuietGroup(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 3}, 0)
	w := newWorkers(t, g)
	const every = 200 * time.Millisecond
	for i := range 300 {
		offer(t, s, 1)
		w.until(start.Add(time.Duration(i+1)*every), all)
	}
	w.open(true)
	if len(w.dead) > 0 {
		t.Fatalf("the outage made %d dead letters", len(w.dead))
	}
	w.until(w.now.Add(10*time.Minute), tenth)
	w.onlyTheBad(300, tenth)
}

// TestOutage_OneSuccessEndsIt looks at the probes: few, with growing pauses, first deliveries among them.
func TestOutage_OneSuccessEndsIt(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 100)
	w := newWorkers(t, g)
	w.fail()
	if n := w.work(100, all); n != breakerProbes || g.Ready() || w.work(100, all) != 0 {
		t.Fatalf("%d probes at once, and more without a pause", n)
	}
	for i := range 9 {
		pause := min(breakerPause<<i, breakerLongest)
		at, ok := g.NextDeadline()
		if !ok || at.Sub(w.now) != pause {
			t.Fatalf("the next probes are due after %s, %v; want %s", at.Sub(w.now), ok, pause)
		}
		w.now = at
		g.Tick(at)
		before := s.supply.(*logSupply).cursor
		if n := w.work(100, all); n != breakerProbes || g.Ready() || s.supply.(*logSupply).cursor-before < breakerProbes-1 {
			t.Fatalf("%d probes, %d of them first deliveries", n, s.supply.(*logSupply).cursor-before)
		}
	}
	w.now = w.now.Add(breakerLongest)
	g.Tick(w.now)
	w.work(1, nothing)
	w.open(false)
	if n := w.work(1000, nothing); n != 99 || !s.Done(100) {
		t.Fatalf("%d messages came after the success, want the rest of 99; %+v", n, g.Depth())
	}
}

// A breaker is closed by a late ack, of what was handed out before it, and by a delivery token, too.
func TestOutage_EndsByAnyAck(t *testing.T) {
	for name, ack := range map[string]func(s *Share) bool{
		"late":  func(s *Share) bool { return s.Ack(1, 1, 1, start, nil) == nil },
		"token": func(s *Share) bool { return s.AckProven(100, start) },
	} {
		g, s := newShare(t, core.GroupSpec{}, 100)
		w := newWorkers(t, g)
		w.fail()
		if !ack(s) {
			t.Errorf("%s: refused", name)
		}
		w.open(false)
	}
}

// TestOutage_SwitchedOff ends it at once, and lets none begin.
func TestOutage_SwitchedOff(t *testing.T) {
	g, _ := newShare(t, core.GroupSpec{}, 100)
	w := newWorkers(t, g)
	w.until(start.Add(2*time.Second), all)
	w.open(true)
	off := core.GroupSpec{Breaker: core.BreakerOff}.WithDefaults()
	g.Update(off, w.now)
	w.open(false)
	w.until(start.Add(3*time.Second), all)
	w.onlyTheBad(100, all)
}

// TestOutage_SurvivesItsOwner hands the share to another owner in the middle of an outage, with nothing left that was
// never tried.
func TestOutage_SurvivesItsOwner(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 3}, 40)
	w := newWorkers(t, g)
	w.until(start.Add(time.Minute), all)
	w.open(true)
	for range 5 {
		blob, _ := s.Checkpoint(nil, false, w.now)
		st, err := DecodeState(blob)
		if err != nil {
			t.Fatal(err)
		}
		if blob[0] != stateVersion {
			t.Fatalf("the checkpoint has version %d", blob[0])
		}
		w.g = NewGroup(g.spec)
		s = w.g.AddShare(extent(1), st, w.now)
		offer(t, s, 40)
		w.until(w.now.Add(4*time.Minute), all)
		w.open(true)
	}
	if len(w.dead) > 0 {
		t.Fatalf("%d messages died", len(w.dead))
	}
	w.until(w.now.Add(time.Hour), tenth)
	w.onlyTheBad(40, tenth)
	if err := w.g.check(); err != nil {
		t.Error(err)
	}
}

// A rejected message stays dead, and a rejection shows that a worker works.
func TestOutage_Rejections(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 1, LockTimeout: time.Second}, 100)
	runs := g.Take(1, Credit{Messages: 40, Bytes: 1 << 20}, start, nil)
	if len(runs) != 1 || runs[0].Count != 40 {
		t.Fatalf("got %v", runs)
	}
	if err := s.Reject(1, 1, nil, start); err != nil {
		t.Fatal(err)
	}
	g.Tick(start.Add(time.Second))
	if open := g.breaker.isOpen(); !open || g.Depth().DeadLettering != 1 {
		t.Fatalf("open: %v, %+v; want one dying", open, g.Depth())
	}
	now := start.Add(2 * time.Second)
	g.Tick(now)
	for _, r := range g.Take(1, Credit{Messages: 1, Bytes: 1 << 20}, now, nil) {
		if err := s.Reject(r.Base, r.Attempt, nil, now); err != nil {
			t.Fatal(err)
		}
	}
	if open := g.breaker.isOpen(); open || g.Depth().DeadLettering != 2 {
		t.Fatalf("open: %v, %+v; want two dying", open, g.Depth())
	}
}

// TestOutage_ConsumerThatDied opens the breaker for a moment: its locks run out all at once, and another consumer gets
// a few of the messages at once, and the others as soon as it acks one.
func TestOutage_ConsumerThatDied(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{LockTimeout: 10 * time.Second}, 100)
	take(g, 1000, start)
	w := newWorkers(t, g)
	w.now = start.Add(10 * time.Second)
	g.Tick(w.now)
	save(s, w.now)
	if n := w.work(100, nothing); n != breakerProbes {
		t.Fatalf("%d messages were handed out at once, want %d", n, breakerProbes)
	}
	if n := w.work(100, nothing); n != 100-breakerProbes || !s.Done(100) {
		t.Errorf("%d messages came after the first ack; %+v", n, g.Depth())
	}
	w.open(false)
}

// TestOutage_ConsumerThatDiedBesideOthers: while another consumer acks, the locks of one that died open nothing,
// however many they are.
func TestOutage_ConsumerThatDiedBesideOthers(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{LockTimeout: 10 * time.Second}, 100)
	take(g, 60, start)
	w := newWorkers(t, g)
	w.next = 10
	w.now = start.Add(time.Second)
	w.work(1, nothing)
	w.now = start.Add(10 * time.Second)
	g.Tick(w.now)
	save(s, w.now)
	w.open(false)
	if n := w.work(100, nothing); n != 99 || !s.Done(100) {
		t.Errorf("%d messages were handed out at once, want all 99; %+v", n, g.Depth())
	}
	if n := g.Counters().NotCounted; n != 0 {
		t.Errorf("%d attempts do not count", n)
	}
}

// TestOutage_LockTimeoutIsRaised: all workers begin to hang a moment after the last success, and the lock timeout of
// the group is raised while they do. The locks of before time out in a row, and that is still an outage.
func TestOutage_LockTimeoutIsRaised(t *testing.T) {
	spec := core.GroupSpec{MaxDeliveries: 1, LockTimeout: 30 * time.Second}.WithDefaults()
	g, s := newShare(t, spec, 41)
	want(t, "one", take(g, 1, start), "1+1@1")
	s.Ack(1, 1, 1, start, nil)
	take(g, 40, second(1))
	spec.LockTimeout = time.Hour
	g.Update(spec, second(2))
	w := newWorkers(t, g)
	w.now = second(31)
	g.Tick(w.now)
	w.open(true)
	w.until(second(60), all)
	if len(w.dead) > 0 {
		t.Errorf("%d messages are dead letters", len(w.dead))
	}
}
