package dispatch

import (
	"math"

	"github.com/columbamq/columba/core"
)

// A share of the retry queue's extents takes the messages in when they are due, with the attempts that their
// records tell of. They are retries: their next attempts are counted durably first, see claim.go, and only while
// somebody takes messages. Nothing of them is remembered: a transfer sees to it that there is one of each, see
// adr/0057.

// Returning makes s a share of the group's retry queue, before anything is offered to it.
func (s *Share) Returning() {
	s.returning = true
	s.supply = newDueSupply(s)
}

// IsReturning reports whether the share is of the retry queue.
func (s *Share) IsReturning() bool { return s.returning }

// originOf is where a message was before it went to the retry queue first, as far as its record is read.
func (s *Share) originOf(seq core.Seq, m *message) core.Receipt {
	if s.returning && m.batch != nil {
		if at := m.batch.historyAt(s.place(m.batch, seq)).Origin; at.Seq > 0 {
			return at
		}
	}
	return core.Receipt{Extent: s.extent, Seq: seq}
}

// attemptsLeft is how many attempts a message of the retry queue has left.
func (s *Share) attemptsLeft(history History) int {
	most := s.group.spec.MaxDeliveries
	if most == core.UnlimitedDeliveries {
		return math.MaxInt
	}
	return most - int(history.here()-min(history.NotCounted, history.here()))
}

// goOn has a message of the retry queue go on where it left off.
func (s *Share) goOn(seq core.Seq, m *message, history History) {
	m.attempts = history.here()
	m.failure = Nacked
	if history.LockTimedOut { // its last attempt is isolated
		m.failure = LockTimedOut
	}
	x := uncounted{attempts: min(history.NotCounted, m.attempts)}         // in place of those of before the share was rebuilt
	x.unsure = uint8(min(uint16(history.Unsure), x.attempts, mostUnsure)) // else no checkpoint could tell of it
	s.setUncounted(seq, x)
}
