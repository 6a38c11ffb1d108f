package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// refuser nacks all it gets for a while, as one session, and says how many messages it got.
func refuser(t *testing.T, g *Group, session SessionID, now, end time.Time) (n int) {
	t.Helper()
	for {
		got := 0
		for _, r := range g.Take(session, Credit{Messages: 1000, Bytes: 1 << 20}, now, nil) {
			for i := range r.Count {
				got++
				if err := r.Share.Nack(r.Base+core.Seq(i), r.Attempt, 0, nil, 0, now); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, s := range g.shares {
			save(s, now)
		}
		if n += got; got > 0 {
			continue
		}
		at, ok := g.NextDeadline()
		if !ok || at.After(end) {
			return n
		}
		now = at
		g.Tick(now)
	}
}

func TestThrottle_SlowerAndSlower(t *testing.T) {
	for session := range SessionID(2) { // 0 is that of pulls
		g, s := newShare(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff}, 100)
		before := 1 << 20
		for i := range 4 {
			n := refuser(t, g, session, second(10*i), second(10*i+10))
			if n > before || n < throttledAtOnce {
				t.Fatalf("session %d got %d messages in 10 s, %d in the 10 s before", session, n, before)
			}
			before = n
		}
		if most := 3 * throttledAtOnce; before > most {
			t.Errorf("session %d gets %d messages in 10 s at last, want at most %d", session, before, most)
		}
		now := second(60)
		g.Tick(now)
		var last Run
		for i := range throttledAtOnce { // a session that takes one at a time gets as many
			runs := g.Take(session, Credit{Messages: 1, Bytes: 1 << 20}, now, nil)
			if len(runs) != 1 || g.Throttled(session) != (i == throttledAtOnce-1) || g.Throttled(9) {
				t.Fatalf("message %d: got %v; throttled %v, another session %v", i+1, runs, g.Throttled(session), g.Throttled(9))
			}
			last = runs[0]
		}
		if bad := s.Ack(last.Base, 1, last.Attempt, now, nil); bad != nil {
			t.Fatal(bad)
		}
		n := 0
		for _, r := range g.Take(session, Credit{Messages: 1000, Bytes: 1 << 20}, now, nil) {
			n += int(r.Count)
		}
		if want := 100 - throttledAtOnce; n != want {
			t.Errorf("after an ack session %d got %d messages at once, want %d", session, n, want)
		}
	}
}

// TestThrottle_CountsPauses: the pause doubles with each pause after which ten nacks came back, or many more.
func TestThrottle_CountsPauses(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff}, 2000)
	now := start
	for _, r := range g.Take(1, Credit{Messages: 1000, Bytes: 1 << 20}, now, nil) { // all that it held when it began to fail
		for i := range r.Count {
			if err := s.Nack(r.Base+core.Seq(i), r.Attempt, time.Minute, nil, 0, now); err != nil {
				t.Fatal(err)
			}
		}
	}
	pause := func(when string, nacks int, want time.Duration) {
		t.Helper()
		runs := g.Take(1, Credit{Messages: 1000, Bytes: 1 << 20}, now, nil)
		if len(runs) != 1 || runs[0].Count != throttledAtOnce || !g.Throttled(1) {
			t.Fatalf("%s: got %v, throttled %v", when, runs, g.Throttled(1))
		}
		for i := range core.Seq(nacks) {
			if err := s.Nack(runs[0].Base+i, 1, time.Minute, nil, 0, now); err != nil {
				t.Fatal(err)
			}
		}
		deadline(t, g, now.Add(want))
		now = now.Add(want)
	}
	pause("the first pause", throttledAtOnce, minThrottlePause)
	pause("only nacks came back", 1, 2*minThrottlePause)
	pause("one nack came back", throttledAtOnce-1, 2*minThrottlePause)
	pause("another nine came back", 0, 4*minThrottlePause)
	pause("nothing came back", throttledAtOnce, 4*minThrottlePause)
	for want := 8 * minThrottlePause; want < maxThrottlePause; want *= 2 {
		pause("only nacks came back", throttledAtOnce, want)
	}
	pause("the longest pause", throttledAtOnce, maxThrottlePause)
	pause("the longest pause", throttledAtOnce, maxThrottlePause)
}

// One that acks now and then is not throttled, nor is another session for what this one does.
func TestThrottle_OnlyThoseWhoOnlyNack(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff}, 400)
	for seq := core.Seq(1); seq <= 200; seq++ {
		take(g, 1, start)
		if seq%freeNacks == 0 {
			s.Ack(seq, 1, 1, start, nil)
		} else if err := s.Nack(seq, 1, time.Minute, nil, 0, start); err != nil {
			t.Fatal(err)
		}
	}
	if g.Throttled(1) {
		t.Error("it acks one of twenty, and is throttled")
	}
	refuser(t, g, 2, start, start)
	if !g.Throttled(2) || g.Throttled(1) {
		t.Errorf("throttled: %v, the other session: %v", g.Throttled(2), g.Throttled(1))
	}
	g.Leave(2)
	if len(g.throttle.paces) > 1 {
		t.Errorf("%d sessions are remembered", len(g.throttle.paces))
	}
}

func TestThrottle_SwitchedOff(t *testing.T) {
	g, _ := newShare(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff}, 100)
	refuser(t, g, 1, start, second(1))
	if !g.Throttled(1) {
		t.Fatal("not throttled")
	}
	g.Update(core.GroupSpec{Breaker: core.BreakerOff, NoNackThrottle: true}.WithDefaults(), second(1))
	if g.Throttled(1) {
		t.Error("throttled although that is switched off")
	}
	now := second(1)
	for range 100 {
		for _, r := range g.Take(1, Credit{Messages: 1, Bytes: 1 << 20}, now, nil) {
			if err := r.Share.Nack(r.Base, r.Attempt, time.Minute, nil, 0, now); err != nil {
				t.Fatal(err)
			}
		}
	}
	if g.Throttled(1) {
		t.Error("throttled after the switch")
	}
}

// A message may be settled by its token after its session has left: nothing of the session is kept for that.
func TestThrottle_NackAfterLeave(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff}, 100)
	for session := SessionID(1); session <= 50; session++ {
		runs := g.Take(session, Credit{Messages: 2, Bytes: 1 << 20}, second(0), nil)
		if len(runs) == 0 {
			t.Fatalf("session %d got nothing", session)
		}
		r := runs[0]
		if err := s.Nack(r.Base, r.Attempt, time.Minute, nil, 0, second(0)); err != nil {
			t.Fatal(err)
		}
		g.Leave(session)
		if err := s.Nack(r.Base+1, r.Attempt, time.Minute, nil, 0, second(0)); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.throttle.paces) > 0 || len(g.sessions.of) > 0 {
		t.Errorf("%d paces and %d sessions are kept; every session has left", len(g.throttle.paces), len(g.sessions.of))
	}
}
