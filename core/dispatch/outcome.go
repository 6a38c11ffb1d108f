package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
)

// attemptFailed tells the breaker that an attempt of a message failed, and has it not count if the breaker says so.
func (s *Share) attemptFailed(seq core.Seq, m *message) {
	g := s.group
	o := outcome{id: s.originOf(seq, m), of: messageRef{s, seq}, first: m.attempts == 1}
	o.others = m.failure == LockTimedOut && g.succeededAt > s.handedOut(seq, m)
	percent := g.breakerPercent()
	if percent == 0 {
		return
	}
	g.makeBreaker(percent)
	was := g.breaker.isOpen()
	counts, led := g.breaker.outcome(groupScope, o, g.now)
	if !counts {
		g.counters.NotCounted++
		s.addNotCounted(seq, m, 1)
	}
	if led != nil {
		g.opened(led)
	} else if was {
		g.keepBreaker()
	}
}

// succeeded tells the breaker of n messages that were settled. Frequent.
func (g *Group) succeeded(n int) {
	g.succeededAt = g.now
	if g.breaker == nil {
		return
	}
	was := g.breaker.open
	g.breaker.outcome(groupScope, outcome{successes: n}, g.now)
	if was {
		g.keepBreaker()
	}
}

// opened has the failures that led to it not count, also where they were the last ones of their messages.
func (g *Group) opened(led []failing) {
	g.counters.Opened++
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
		g.counters.NotCounted += uint64(x.fails)
		drops := m.phase == delayed && s.exhausted(seq, m)
		s.addNotCounted(seq, m, x.fails)
		s.change()
		if (s.recalled(seq, m) || drops || m.phase == blocked || m.phase == isolated) && m.failure != Rejected && m.failure != Expired {
			s.judge(seq, m, 0)
			s.wake()
		}
	}
}

// mayBeDead reports whether the dead letter queue may have a message.
func (s *Share) mayBeDead(seq core.Seq, m *message) bool {
	x := s.table.note(seq).transfer
	return m.phase.leaves() && x.to == DeadLetterQueue && (m.phase == appending || m.phase == held || x.mayBeThere)
}

// recalled reports whether a stall takes back a message that is not in the queue yet that it leaves for.
func (s *Share) recalled(seq core.Seq, m *message) bool {
	if !m.phase.leaves() || m.phase == appending || m.phase == held {
		return false
	}
	x := s.table.note(seq).transfer
	return routes[x.to].recalled && !x.mayBeThere
}

// resumeBreaker opens it as an earlier owner of a share left it.
func (g *Group) resumeBreaker(saved []byte) {
	percent := g.breakerPercent()
	if len(saved) == 0 || percent == 0 {
		return
	}
	g.makeBreaker(percent)
	if g.breaker.restore(saved, g.now) {
		g.counters.Opened++
	}
	g.keepBreaker()
}

// makeBreaker makes it, unless there is one: most groups never have a failure.
func (g *Group) makeBreaker(percent int) {
	if g.breaker == nil {
		g.breaker = newBreaker(percent, g.spec.LockTimeout, g.unlimited())
		g.breaker.worked = g.succeededAt
	}
}

// keepBreaker has further checkpoints tell the next owner of the breaker.
func (g *Group) keepBreaker() {
	if err := g.SetPolicy(PolicyBreaker, g.breaker.save()); err != nil {
		panic(err) // it is known, and always fits
	}
}

// breakerPercent is the share of failures that opens the group's breaker; 0: none does.
func (g *Group) breakerPercent() int {
	if g.spec.Breaker == core.BreakerOff {
		return 0
	}
	return g.spec.Breaker
}

// unlimited reports whether no message is ever exhausted.
func (g *Group) unlimited() bool { return g.spec.MaxDeliveries == core.UnlimitedDeliveries }

// Breaker is the state of the group's breaker, and since when it is open or half-open.
func (g *Group) Breaker() (state BreakerState, since time.Time) {
	if state = g.breaker.state(); state != BreakerClosed {
		since = g.instant(g.breaker.since)
	}
	return state, since
}

// isLast reports whether a failed message has one attempt left.
func (s *Share) isLast(seq core.Seq, m *message) bool {
	most := s.group.spec.MaxDeliveries
	return m.attempts > 0 && most != core.UnlimitedDeliveries && int(m.attempts)-s.notCounted(seq) == most-1
}

// uncounted is what is kept of a message of whose attempts some do not count. The current attempt is unsure at a new
// owner if a dead one had handed it out, or was about to: perhaps no consumer had it, perhaps one has settled it since
// the last checkpoint. It keeps its lock; when that runs out, the attempt does not count, though its number stays used.
type uncounted struct {
	attempts uint16 // that do not count
	unsure   uint8  // of those, since they were unsure; ≤ mostUnsure
	now      bool   // the current attempt is unsure
}

// mostUnsure bounds the unsure attempts of a message that do not count: one that takes its output host with it comes to
// its end all the same.
const mostUnsure = 3

func (s *Share) setUncounted(seq core.Seq, x uncounted) {
	n := s.table.note(seq)
	n.uncounted = x
	s.table.setNote(seq, n)
}

// addNotCounted has n failed attempts of a message not count.
func (s *Share) addNotCounted(seq core.Seq, m *message, n uint16) {
	x := s.table.note(seq).uncounted
	x.attempts = uint16(min(uint(x.attempts)+uint(n), uint(m.attempts)))
	s.setUncounted(seq, x)
}

// notCounted are how many attempts of a message do not count.
func (s *Share) notCounted(seq core.Seq) int {
	if s.table.noted == 0 {
		return 0
	}
	return int(s.table.note(seq).uncounted.attempts)
}

// pardon reports whether an attempt whose lock timed out does not count, and notes that.
func (s *Share) pardon(seq core.Seq, m *message) bool {
	x := s.table.note(seq).uncounted
	if !x.now || x.unsure >= mostUnsure {
		return false
	}
	x.now = false
	if x.attempts < m.attempts { // else one owner has it as not counted, and the checkpoint of another had it locked: see State.Merge
		x.attempts++
		x.unsure++
		s.group.counters.NotCounted++
	}
	s.setUncounted(seq, x)
	return true
}

// capNotCounted has no more attempts of a message not count than it has: one was given back.
func (s *Share) capNotCounted(seq core.Seq, m *message) {
	if x := s.table.note(seq).uncounted; x.attempts > m.attempts {
		x.attempts, x.unsure = m.attempts, uint8(min(uint16(x.unsure), m.attempts))
		s.setUncounted(seq, x)
	}
}

// LeavesUnsure reports whether the next owner could not tell, by the last checkpoint, how some attempts or transfers
// have ended. A final checkpoint would tell it.
func (s *Share) LeavesUnsure() bool {
	return !s.final && s.of(inFlight, unsaved, ready, leaving, announced, transferring, held) > 0
}
