package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
)

// ParkAfter is the longest wait in memory; a message that has to wait longer waits in the retry queue. Others may, too:
// see occupancy.go.
const ParkAfter = 30 * time.Second

// failed decides what follows the failed attempt of a message, whose failure is noted: until > 0 delays the next one.
func (s *Share) failed(seq core.Seq, m *message, until int64) {
	s.change()
	if m.failure == Rejected { // a verdict on the message, by a worker that does its work
		s.group.succeeded(1)
	} else {
		s.attemptFailed(seq, m)
	}
	if s.dropsLater(seq, m) {
		was := m.isRetry()
		s.endLock(seq)
		s.delayUntil(seq, m, s.group.now+int64(routes[DeadLetterQueue].patience))
		s.group.retried(was, true)
	} else {
		s.judge(seq, m, until)
	}
	s.weighs(seq, m)
}

// dropsLater reports whether a group that drops keeps an exhausted message until it is known whether its attempt counts,
// for as long as one that becomes a dead letter stays: see Share.stays.
func (s *Share) dropsLater(seq core.Seq, m *message) bool {
	g := s.group
	return g.spec.Exhausted == core.ExhaustedDrop && m.failure != Rejected && g.breaker.gathers() > 0 && s.exhausted(seq, m)
}

// delayUntil has a message wait in memory.
func (s *Share) delayUntil(seq core.Seq, m *message, until int64) {
	m.due = until
	s.move(m, delayed)
	s.group.wakeAt(s, seq, until)
}

// judge sends a message on: to its next attempt, here or by the retry queue, or if it had its last to its end.
func (s *Share) judge(seq core.Seq, m *message, until int64) {
	was := m.isRetry()
	s.endLock(seq)
	if m.phase.leaves() {
		s.withdraw(seq, m)
	}
	exhausted := s.exhausted(seq, m)
	switch {
	case !exhausted && s.waitsElsewhere(seq, until):
		s.leave(seq, m, RetryQueue, until)
	case !exhausted && s.isDisplaced(m, until):
		s.displace(seq, m, until)
	case !exhausted && until == 0:
		s.retry(seq, m)
	case !exhausted:
		s.delayUntil(seq, m, until)
		s.waitsNacked(seq, m)
	case s.group.spec.Exhausted == core.ExhaustedDrop:
		s.group.counters.Dropped++
		s.settle(seq, m)
	case s.group.spec.Exhausted == core.ExhaustedBlock:
		s.move(m, blocked)
	default:
		s.leave(seq, m, DeadLetterQueue, 0)
	}
	if m.phase != none { // a retry that was settled is counted by that
		s.group.retried(was, m.isRetry())
	}
}

// exhausted reports whether a message has had its last attempt.
func (s *Share) exhausted(seq core.Seq, m *message) bool {
	most := s.group.spec.MaxDeliveries
	return m.failure == Rejected || most != core.UnlimitedDeliveries && int(m.attempts)-s.excuses(seq) >= most
}

// waitsElsewhere reports whether a message that failed, and may be handed out again at until (ns, 0: at once), goes to
// the retry queue: when it waits long, and when its metadata are replaced, since only an append can do that.
func (s *Share) waitsElsewhere(seq core.Seq, until int64) bool {
	return until-s.group.now > int64(ParkAfter) || s.metadataOf(seq) != nil
}

// retry queues a message for its next attempt.
func (s *Share) retry(seq core.Seq, m *message) {
	if s.needsIsolation(seq, m) {
		s.setApart(seq, m)
		return
	}
	s.await(seq, m)
}

// await has a message wait for credit. Without its bytes it waits for those.
func (s *Share) await(seq core.Seq, m *message) {
	s.change()
	s.move(m, unclaimed)
	s.waitsNacked(seq, m)
	if m.batch != nil {
		s.group.unclaimed.push(messageRef{s, seq})
		s.group.claimRetries()
	}
}
