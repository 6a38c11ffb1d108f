package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// sender sends all it gets back for ten minutes, and parks what may leave.
type sender struct {
	t      *testing.T
	g      *Group
	s      *Share
	now    time.Time
	parked map[core.Seq]Transfer
}

// step takes up to n messages, and lets a tenth of a second pass.
func (x *sender) step(n int) {
	x.t.Helper()
	for _, r := range x.g.Take(1, Credit{Messages: n, Bytes: 1 << 20}, x.now, nil) {
		for i := range r.Count {
			if err := r.Share.Nack(r.Base+core.Seq(i), r.Attempt, 10*time.Minute, nil, 0, x.now); err != nil {
				x.t.Fatal(err)
			}
		}
	}
	if x.s.Leaving() > 0 {
		save(x.s, x.now)
	}
	for _, p := range x.g.TakeTransfers(RetryQueue, 1000, nil) {
		x.parked[p.Seq] = p
		p.Share.Transferred(p.Seq, x.now)
	}
	x.now = x.now.Add(100 * time.Millisecond)
	x.g.Tick(x.now)
}

// TestOutage_WhatWasParkedBefore: the attempts that fail before an outage is known as one do not count, also of
// messages that are parked. With a success instead they count, and what waited for that is parked then.
func TestOutage_WhatWasParkedBefore(t *testing.T) {
	for _, over := range []bool{false, true} {
		g, s := newShare(t, core.GroupSpec{MaxDeliveries: 5, NoNackThrottle: true}, 100)
		x := &sender{t: t, g: g, s: s, now: start, parked: make(map[core.Seq]Transfer)}
		const before = 15
		for range before / 5 {
			x.step(5)
		}
		if len(x.parked) > 0 {
			t.Fatalf("%d are parked before it is known whether it is an outage", len(x.parked))
		}
		if over {
			r := g.Take(1, Credit{Messages: 1, Bytes: 1 << 20}, x.now, nil)
			if bad := s.Ack(r[0].Base, 1, 1, x.now, nil); bad != nil {
				t.Fatal(bad)
			}
		} else {
			for range 40 {
				x.step(5)
			}
		}
		x.step(0)
		if open := g.breaker.isOpen(); open == over || len(x.parked) < before {
			t.Fatalf("open %v, %d parked", open, len(x.parked))
		}
		for seq, p := range x.parked {
			if counts := p.NotCounted == 0; counts != over {
				t.Errorf("seq %d is parked with %d attempts, %d not counted; open %v", seq, p.Attempts, p.NotCounted, !over)
			}
		}
	}
}

// TestOutage_FewAreParkedSoon: messages that fail while nothing else happens do not wait for long, nor does one that
// fails alone.
func TestOutage_FewAreParkedSoon(t *testing.T) {
	for n, patience := range map[int]time.Duration{1: 0, 3: routes[RetryQueue].patience} {
		g, s := newShare(t, core.GroupSpec{}, n)
		x := &sender{t: t, g: g, s: s, now: start, parked: make(map[core.Seq]Transfer)}
		x.step(n)
		if (len(x.parked) == n) != (patience == 0) {
			t.Errorf("%d of %d are parked at once", len(x.parked), n)
		}
		if at, ok := g.NextDeadline(); patience > 0 && (!ok || at.Sub(start) > patience) {
			t.Errorf("the next deadline is %s after the failures", at.Sub(start))
		}
		x.now = start.Add(patience)
		g.Tick(x.now)
		if x.step(0); len(x.parked) != n {
			t.Errorf("%d of %d are parked after %s", len(x.parked), n, patience)
		}
	}
}

// TestOutage_OneMessageIsOne: the breaker knows a message again that came back from the retry queue, so a few messages
// that always fail open nothing; and when it opens, all their failures in the row do not count.
func TestOutage_OneMessageIsOne(t *testing.T) {
	for _, others := range []int{0, 14} {
		const n = 6
		g, s := newShare(t, core.GroupSpec{MaxDeliveries: 9, NoNackThrottle: true}, n)
		back := g.AddTimers(extent(2), State{}, start)
		back.Returning()
		now, origins := start, []core.Seq(nil) // of the records of the retry queue
		for round := range 4 {                 // messages that wait in the retry queue between any two attempts
			for _, r := range g.Take(1, Credit{Messages: n, Bytes: 1 << 20}, now, nil) {
				for i := range core.Seq(r.Count) {
					if err := r.Share.Nack(r.Base+i, r.Attempt, time.Minute, nil, 0, now); err != nil {
						t.Fatal(err)
					}
				}
			}
			now = now.Add(routes[RetryQueue].patience)
			g.Tick(now)
			save(s, now)
			save(back, now)
			for i, p := range g.TakeTransfers(RetryQueue, n, nil) {
				seq := p.Seq
				if p.Share == back {
					seq = origins[seq-1]
				}
				origins = append(origins, seq)
				r := dueRecords(nil, nil, core.Seq(round*n+i+1))
				r.History = []History{{Origin: core.Receipt{Extent: s.Extent(), Seq: seq}, Attempts: p.Attempts, NotCounted: p.NotCounted}}
				p.Share.Transferred(p.Seq, now)
				if err := back.OfferDue(r, now); err != nil {
					t.Fatal(err)
				}
			}
			now = now.Add(time.Minute)
			want(t, "before they are counted", take(g, n, now))
			save(back, now)
		}
		if g.Counters().Opened > 0 || g.breaker.gathers() != n {
			t.Fatalf("%d messages that fail again and again: opened %d times, %d gathered", n, g.Counters().Opened, g.breaker.gathers())
		}
		if others == 0 {
			continue
		}
		offer(t, s, others)
		for _, r := range g.Take(1, Credit{Messages: 100, Bytes: 1 << 20}, now, nil) {
			failAll(t, []Run{r})
		}
		if c := g.Counters(); c.Opened != 1 || c.NotCounted != 5*n+uint64(others) {
			t.Errorf("%d messages that fail in a row opened it %d times, and %d attempts did not count, want all %d", n+others, c.Opened, c.NotCounted, 5*n+others)
		}
	}
}
