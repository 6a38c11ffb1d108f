package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// heardAt is a breaker of a few failures at one second, that hears of an opening elsewhere then.
func heardAt(b *breaker, failures int, now int64) []failing {
	b.failAll(1, failures, false)
	return b.hear(1, now)
}

// TestElsewhere_OpensByOneFailure: one failure is enough when a breaker is open elsewhere, and nothing less.
func TestElsewhere_OpensByOneFailure(t *testing.T) {
	for name, x := range map[string]struct {
		percent  int
		failures int
		worked   time.Duration // something succeeded so long before the failures; 0: never
		after    time.Duration // the news come so long after them
		want     bool
	}{
		"at once":                           {percent: core.BreakerAlways, failures: 1, want: true},
		"several":                           {percent: core.BreakerAlways, failures: 4, after: time.Second, want: true},
		"by a share":                        {percent: 50, failures: 1, want: true},
		"nothing failed":                    {percent: core.BreakerAlways},
		"it is off":                         {failures: 4},
		"something succeeded a moment ago":  {percent: core.BreakerAlways, failures: 4, worked: 400 * time.Millisecond, after: 500 * time.Millisecond},
		"something succeeded a second ago":  {percent: core.BreakerAlways, failures: 4, worked: 500 * time.Millisecond, after: 500 * time.Millisecond, want: true},
		"what failed may not be there":      {percent: core.BreakerAlways, failures: 4, after: routes[DeadLetterQueue].patience + 1},
		"what failed is taken back at last": {percent: core.BreakerAlways, failures: 4, after: routes[DeadLetterQueue].patience, want: true},
	} {
		b := minuteBreaker(x.percent)
		if x.worked > 0 {
			b.failAll(100, 3, true)
			b.outcome(groupScope, outcome{successes: 1}, sec-int64(x.worked))
		}
		led := heardAt(b, x.failures, sec+int64(x.after))
		if b.open != x.want || x.want && len(led) != x.failures || !x.want && led != nil {
			t.Errorf("%s: open %v, led by %d failures", name, b.open, len(led))
		}
		if n := b.admit(groupScope, 0); b.open && (n != int(b.before.probes()) || b.counting()) {
			t.Errorf("%s: %d probes, failures count: %v", name, n, b.counting())
		}
	}
}

// TestElsewhere_CountsWithTheNextFailure: news that come before anything failed here stand while the opening lasts.
func TestElsewhere_CountsWithTheNextFailure(t *testing.T) {
	b := minuteBreaker(core.BreakerAlways)
	b.hear(1, sec)
	if _, opened := b.failAll(1, 1, false); !opened || !b.followed {
		t.Fatal("the first failure did not open it")
	}
	b = minuteBreaker(core.BreakerAlways)
	b.hear(1, sec)
	b.hear(0, sec)
	if _, opened := b.failAll(1, breakerFew-1, true); opened {
		t.Fatal("it opened by what had ended elsewhere")
	}
}

// TestElsewhere_WaitsForASecondWithoutASuccess: when nothing more fails here, the deadline opens it.
func TestElsewhere_WaitsForASecondWithoutASuccess(t *testing.T) {
	b := minuteBreaker(core.BreakerAlways)
	b.failAll(100, 1, true)
	b.outcome(groupScope, outcome{successes: 1}, sec-1)
	b.hear(1, sec)
	b.failAll(1, 2, true)
	at := b.nextDeadline(sec)
	if b.open || at != sec-1+int64(breakerUsual) {
		t.Fatalf("open: %v, the deadline is %d", b.open, at)
	}
	if b.follow(at-1) != nil || len(b.follow(at)) != 2 || !b.open {
		t.Fatalf("open at the deadline: %v", b.open)
	}
}

// TestElsewhere_OpensOnceForEachOpening: what it was open for, or closed while that lasted, does not open it again.
func TestElsewhere_OpensOnceForEachOpening(t *testing.T) {
	for name, open := range map[string]func(b *breaker){
		"by one elsewhere": func(b *breaker) { heardAt(b, 1, sec) },
		"before that":      func(b *breaker) { b.failAll(1, breakerLeast, true); b.hear(1, sec) },
		"while that lasts": func(b *breaker) { b.hear(1, 0); b.hear(0, 0); b.failAll(1, breakerLeast, true); b.hear(1, sec) },
	} {
		b := minuteBreaker(core.BreakerAlways)
		open(b)
		if !b.open {
			t.Fatalf("%s: it did not open", name)
		}
		b.outcome(groupScope, outcome{successes: 1}, sec-int64(breakerUsual))
		if _, opened := b.failAll(1, breakerFew-1, true); opened || b.open {
			t.Errorf("%s: it opened again by the same opening", name)
		}
		b.hear(1, sec)
		b.hear(0, sec)
		if b.hear(1, sec); b.open {
			t.Errorf("%s: it opened again when it heard of the same opening once more", name)
		}
		if b.hear(2, sec); !b.open {
			t.Errorf("%s: the next opening did not open it", name)
		}
	}
}

// TestElsewhere_PoisonCountsOnceThatEnds: failures do not count while first attempts fail elsewhere, and do after that.
func TestElsewhere_PoisonCountsOnceThatEnds(t *testing.T) {
	b := minuteBreaker(core.BreakerAlways)
	heardAt(b, 4, sec)
	now := sec
	for range 20 * breakerRounds {
		if _, counted := b.round(&now, false); counted != 0 {
			t.Fatalf("%d failures counted", counted)
		}
	}
	b.hear(0, now)
	if probes, counted := b.round(&now, false); counted != probes || probes != breakerProbes {
		t.Fatalf("%d of %d failures counted after that", counted, probes)
	}
	b.round(&now, false)
	b.hear(2, now)
	b.round(&now, false) // had begun before
	if probes, counted := b.round(&now, false); counted != 0 || probes != breakerProbes {
		t.Errorf("when it opened there again, %d of %d failures counted", counted, probes)
	}
}

// TestElsewhere_WhatOthersHear: of what failed here, while first attempts do, and of none that followed another one.
func TestElsewhere_WhatOthersHear(t *testing.T) {
	g, _ := newShare(t, core.GroupSpec{}, 100)
	w := newWorkers(t, g)
	if n := g.Opening(); n != 0 {
		t.Fatalf("closed, others hear of %d", n)
	}
	w.fail()
	first := g.Opening()
	if first == 0 {
		t.Fatal("others do not hear of it")
	}
	g.Elsewhere(7, w.now)
	if n := g.Opening(); n != first {
		t.Errorf("when one elsewhere is open, too, others hear of %d", n)
	}
	g.breaker.rounds = breakerRounds
	if n := g.Opening(); n != 0 {
		t.Errorf("others hear of opening %d of what may be poison", n)
	}
	w.work(1, nothing)
	w.open(false)
	w.now = w.now.Add(breakerUsual)
	w.work(1, all)
	w.open(false)
	g.Elsewhere(8, w.now)
	w.open(true)
	if n := g.Opening(); n != 0 {
		t.Errorf("it followed another one, and others hear of opening %d", n)
	}
	w.work(1, nothing)
	g.Elsewhere(0, w.now)
	w.now = w.now.Add(breakerUsual)
	w.work(breakerLeast, all)
	w.open(true)
	if n := g.Opening(); n <= first {
		t.Errorf("others hear of opening %d after %d", n, first)
	}
}

// TestElsewhere_IsNotSaved: an owner of what is saved hears of the opening itself. It may be given that with a share:
// then the opening is of what failed there.
func TestElsewhere_IsNotSaved(t *testing.T) {
	b := minuteBreaker(core.BreakerAlways)
	heardAt(b, 4, sec)
	if b.save() != nil {
		t.Error("it is saved")
	}
	other := minuteBreaker(core.BreakerAlways)
	other.failAll(1, breakerLeast, true)
	if b.restore(other.save(), sec) || b.followed || b.save() == nil {
		t.Errorf("after that of the other one: %+v", b.elsewhere)
	}
}

// TestElsewhere_HandfulOfMessages: all of four messages fail at once until each had its last attempt; then news come,
// and none of them dies for as long as the outage lasts elsewhere. The same for a group that drops, or blocks.
func TestElsewhere_HandfulOfMessages(t *testing.T) {
	for _, end := range []core.Exhausted{core.ExhaustedDLQ, core.ExhaustedDrop, core.ExhaustedBlock} {
		for _, off := range []bool{false, true} {
			spec := core.GroupSpec{MaxDeliveries: 3, Exhausted: end}
			if off {
				spec.Breaker = core.BreakerOff
			}
			g, s := newShare(t, spec, 4)
			w := newWorkers(t, g)
			w.until(start.Add(2*time.Second), all)
			w.open(false)
			g.Elsewhere(1, w.now)
			w.open(!off)
			w.until(start.Add(3*time.Hour), all)
			if off {
				if d := g.Depth(); len(w.dead)+int(g.Counters().Dropped)+d.Blocked != 4 {
					t.Errorf("%s, switched off: %d dead, %+v", end, len(w.dead), d)
				}
				continue
			}
			w.until(start.Add(3*time.Hour+2*time.Minute), nothing)
			if n := g.Counters(); len(w.dead) > 0 || n.Dropped > 0 || n.Acked != 4 || !s.Done(4) {
				t.Errorf("%s: %d dead, %+v; %+v is left", end, len(w.dead), n, g.Depth())
			}
		}
	}
}

// TestElsewhere_OneThatWorks: another host has nothing but poison. Here one of three messages fails all the time, and
// the others are acked as before: the bad ones die, and the rest is acked. One success closes the breaker, for as long
// as that opening lasts.
func TestElsewhere_OneThatWorks(t *testing.T) {
	for _, every := range []time.Duration{10 * time.Millisecond, 700 * time.Millisecond, 3 * time.Second} {
		g, s := newShare(t, core.GroupSpec{MaxDeliveries: 3}, 0)
		w := newWorkers(t, g)
		const n = 300
		bad := func(seq core.Seq) bool { return seq%3 == 0 }
		g.Elsewhere(1, w.now)
		for range n {
			offerAt(t, s, 1, w.now, w.now)
			w.until(w.now.Add(every), bad)
		}
		w.onlyTheBad(n-3, bad)
		g.Elsewhere(0, w.now)
		w.until(w.now.Add(time.Hour), bad)
		w.onlyTheBad(n, bad)
		if c := g.Counters(); c.Opened > 1 || c.Acked != n-n/3 {
			t.Errorf("a message every %s: %+v", every, c)
		}
	}
}

// TestElsewhere_NothingIsLeft: the breaker followed one elsewhere, and then its only message left for the retry queue.
// It closes when the other one does, and not before.
func TestElsewhere_NothingIsLeft(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 1)
	take(g, 1, start)
	g.Elsewhere(1, start)
	w := newWorkers(t, g)
	if err := s.Nack(1, 1, time.Hour, nil, 0, start); err != nil {
		t.Fatal(err)
	}
	w.open(true)
	for w.now = start; !s.Done(1); w.now = w.now.Add(time.Second) {
		g.Elsewhere(0, w.now)
		g.Tick(w.now)
		w.open(true)
		g.Elsewhere(2, w.now)
		save(s, w.now)
		for _, x := range g.TakeTransfers(RetryQueue, 1, nil) {
			s.Transferred(x.Seq, w.now)
		}
	}
	g.Tick(w.now)
	w.open(true)
	g.Elsewhere(0, w.now)
	g.Tick(w.now)
	w.open(false)
}

// TestElsewhere_OneThatHasNothingLeft: 20 poison messages open the breaker of one host, and wait for their next
// attempts in the retry queue, which another host has. They come to their end there, though the first host, which is
// handed nothing more, never has a success that closes its breaker.
func TestElsewhere_OneThatHasNothingLeft(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 3}, breakerLeast)
	for _, r := range g.Take(1, Credit{Messages: breakerLeast, Bytes: 1 << 20}, start, nil) {
		for i := range r.Count {
			if err := s.Nack(r.Base+core.Seq(i), r.Attempt, 45*time.Second, nil, 0, start); err != nil {
				t.Fatal(err)
			}
		}
	}
	now := start
	for ; !s.Done(breakerLeast); now = now.Add(time.Second) {
		g.Tick(now)
		save(s, now)
		for _, x := range g.TakeTransfers(RetryQueue, breakerLeast, nil) {
			s.Transferred(x.Seq, now)
		}
	}
	opening := g.Opening()
	if opening == 0 {
		t.Fatal("others do not hear of it")
	}
	other, _ := newShare(t, core.GroupSpec{MaxDeliveries: 3}, 4)
	w := newWorkers(t, other)
	for w.now = now; w.now.Before(start.Add(3 * time.Hour)); {
		if at, due := g.NextDeadline(); due && !at.After(w.now) { // nothing else has the host look at the group
			g.Tick(w.now)
			opening = g.Opening()
		}
		other.Elsewhere(opening, w.now)
		w.until(w.now.Add(10*time.Second), all)
	}
	if len(w.dead) != 4 {
		t.Errorf("%d of 4 poison messages are dead letters, after %d deliveries of the first", len(w.dead), w.given[1])
	}
}

// TestElsewhere_OneThatNobodyTakesFrom: an outage opens the breaker of one host, and its consumers leave. It has
// messages, but its round of probes lasts, as nobody takes them. Poison on another host comes to its end all the same.
func TestElsewhere_OneThatNobodyTakesFrom(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 3}, 2*breakerLeast)
	for _, r := range g.Take(1, Credit{Messages: breakerLeast, Bytes: 1 << 20}, start, nil) {
		for i := range r.Count {
			if err := s.Nack(r.Base+core.Seq(i), r.Attempt, 0, nil, 0, start); err != nil {
				t.Fatal(err)
			}
		}
	}
	g.Leave(1)
	g.Want(Credit{}, false)
	opening := g.Opening()
	if opening == 0 {
		t.Fatal("others do not hear of it")
	}
	other, _ := newShare(t, core.GroupSpec{MaxDeliveries: 3}, 4)
	w := newWorkers(t, other)
	for w.now = start; w.now.Before(start.Add(3 * time.Hour)); {
		if at, due := g.NextDeadline(); due && !at.After(w.now) {
			g.Tick(w.now)
			opening = g.Opening()
		}
		other.Elsewhere(opening, w.now)
		w.until(w.now.Add(10*time.Second), all)
	}
	if len(w.dead) != 4 {
		t.Errorf("%d of 4 poison messages are dead letters, after %d deliveries of the first", len(w.dead), w.given[1])
	}
}
