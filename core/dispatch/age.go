package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
)

// A message that was never handed out is subject to its age: the time since its batch was appended. One that was, is not, whatever
// became of the delivery, nor is one that was merged into the group. A message that expires is not handed out after that, for the first time or again.

// look applies the rules of age to what was never handed out, and sets the deadline at which that has to be done again.
func (s *Share) look() {
	alarm := s.supply.look()
	if alarm == s.alarm {
		return
	}
	if s.alarm = alarm; alarm > 0 {
		s.group.wakeAt(s, 0, alarm)
	}
}

// lapsed reports whether the message of record i of a batch has expired.
func (s *Share) lapsed(b *batch, i int) bool {
	if b.Expire == nil {
		return false
	}
	at := b.Expire[i]
	return at > 0 && at <= s.group.now/int64(time.Millisecond)
}

// lapse ends a message that has expired and has a phase, but is not in flight.
func (s *Share) lapse(seq core.Seq, m *message) {
	s.group.counters.Lapsed++
	if s.group.spec.Expired != core.ExpiredDLQ {
		s.settle(seq, m)
		return
	}
	m.failure = Lapsed
	s.change()
	s.leave(seq, m, DeadLetterQueue, 0)
}

// visibleAt is when the group's delay lets the messages of a batch go, ns.
func (s *Share) visibleAt(b *batch) int64 { return b.Enqueued*1000 + int64(s.group.spec.Delay) }

// KeepsBack reports whether the group's delay keeps a message back that nobody has read here and that was enqueued then, unix µs.
func (s *Share) KeepsBack(enqueued int64, now time.Time) bool {
	return !s.merged && enqueued*1000+int64(s.group.spec.Delay) > now.UnixNano()
}

// KeptBack reports whether the group's delay keeps back what was read last, and so what was not read yet.
func (s *Share) KeptBack() bool {
	l, ok := s.supply.(*logSupply)
	return ok && s.group.spec.Delay > 0 && l.n > 0 && !s.merged && s.visibleAt(*l.batches.back()) > s.group.now
}
