package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
)

// attemptFailed tells the breaker that an attempt of a message failed, and has it not count while the breaker says so.
func (s *Share) attemptFailed(seq core.Seq, m *message) {
	g := s.group
	counts, led := g.breaker.failed(deadRef{s, seq}, m.attempts == 1, g.now)
	if !counts {
		g.counters.Excused++
		s.excuse(seq, m, 1)
	}
	switch {
	case led != nil:
		g.opened(led)
	case g.breaker.open && m.attempts == 1: // its rounds begin anew
		g.keepBreaker()
	}
}

// opened has the failures that led to it not count, also where they were the last ones of their messages.
func (g *Group) opened(led []outcome) {
	g.counters.Stalls++
	g.keepBreaker()
	for _, x := range led {
		s, seq := x.of.share, x.of.seq
		if x.fails == 0 || s.gone {
			continue
		}
		m := s.table.get(seq)
		if m == nil || s.mayBeDead(seq, m) {
			continue
		}
		g.counters.Excused += uint64(x.fails)
		s.excuse(seq, m, x.fails)
		s.changed = true
		if (s.recalled(seq, m) || m.phase == blocked || m.phase == lone) && m.failure != Rejected && m.failure != Lapsed {
			s.judge(seq, m, 0)
			s.wake()
		}
	}
}

// succeeded tells the breaker of n messages that were settled.
func (g *Group) succeeded(n int) {
	if g.breaker.succeeded(n) {
		g.keepBreaker()
	}
}

// probed tells the breaker how many messages were handed out.
func (g *Group) probed(n int) {
	if n > 0 && g.breaker.open {
		g.breaker.handed(n, g.now)
		g.keepBreaker()
	}
}

// tickBreaker begins its next round.
func (g *Group) tickBreaker() {
	if g.breaker.tick(g.now) {
		g.keepBreaker()
	}
}

// keepBreaker has further checkpoints tell the next owner of the breaker.
func (g *Group) keepBreaker() {
	if err := g.SetPolicy(PolicyBreaker, g.breaker.save()); err != nil {
		panic(err) // it is known, and always fits
	}
}

// breakerPercent is the share of failures that opens the breaker of a spec; 0: none does.
func breakerPercent(spec core.GroupSpec) int {
	if spec.NoSmartRetry {
		return 0
	}
	return breakerAlways
}

// Stalled reports since when the breaker is open; ok is false when it is closed.
func (g *Group) Stalled() (since time.Time, ok bool) {
	if !g.breaker.open {
		return time.Time{}, false
	}
	return g.instant(g.breaker.since), true
}

// isLast reports whether a failed message has one attempt left.
func (s *Share) isLast(seq core.Seq, m *message) bool {
	most := s.group.spec.MaxDeliveries
	return m.attempts > 0 && most != core.UnlimitedDeliveries && int(m.attempts)-s.excuses(seq) == most-1
}

// excuse has n failed attempts of a message not count.
func (s *Share) excuse(seq core.Seq, m *message, n uint16) {
	if s.excused == nil {
		s.excused = map[core.Seq]uint16{}
	}
	s.excused[seq] = uint16(min(uint64(s.excused[seq])+uint64(n), uint64(m.attempts)))
}

// excuses are how many attempts of a message do not count.
func (s *Share) excuses(seq core.Seq) int {
	if len(s.excused) == 0 {
		return 0
	}
	return int(s.excused[seq])
}
