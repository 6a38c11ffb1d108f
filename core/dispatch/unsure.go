package dispatch

import "github.com/columbamq/columba/core"

// A message that a dead owner had handed out, or was about to, is unsure for the next owner: perhaps no consumer had
// it, perhaps one has settled it since the last checkpoint. It keeps its lock. When that runs out the attempt does not
// count, like one that fails while the breaker is open: so a message has all the deliveries that it may have. The
// number of the attempt stays used.

// mostUnsure bounds the attempts of a message that do not count since they were unsure: a message that takes its output host with it comes to its end all
// the same.
const mostUnsure = 3

// unsure is what is kept of a message that has, or had, unsure attempts.
type unsure struct {
	spent uint8 // that did not count
	now   bool  // the current attempt is unsure
}

// doubt has the current attempt of a restored message be unsure.
func (s *Share) doubt(seq core.Seq, x unsure) {
	if x == (unsure{}) {
		return
	}
	if s.unsure == nil {
		s.unsure = make(map[core.Seq]unsure)
	}
	s.unsure[seq] = x
}

// pardon reports whether an attempt whose lock ran out does not count, and notes that.
func (s *Share) pardon(seq core.Seq, m *message) bool {
	x := s.unsure[seq]
	if !x.now || x.spent >= mostUnsure {
		return false
	}
	if s.excuses(seq) == int(m.attempts) { // one owner has excused this attempt, and the checkpoint of another had it locked: see State.Merge
		s.unsure[seq] = unsure{spent: x.spent}
		return true
	}
	s.unsure[seq] = unsure{spent: x.spent + 1}
	s.excuse(seq, m, 1)
	s.group.counters.NotCounted++
	return true
}

// uncounted has no more attempts of a message not count than it has. The attempt that was given back may be among them: see pardon.
func (s *Share) uncounted(seq core.Seq, m *message) {
	if s.excuses(seq) <= int(m.attempts) {
		return
	}
	s.excused[seq] = m.attempts
	if x := s.unsure[seq]; uint16(x.spent) > m.attempts {
		x.spent = uint8(m.attempts)
		s.unsure[seq] = x
	}
}

// endLock forgets what belongs to the lock of a message that is not in flight any more.
func (s *Share) endLock(seq core.Seq) {
	delete(s.extended, seq)
	s.sure(seq)
}

// sure says that a consumer has the current attempt of a message.
func (s *Share) sure(seq core.Seq) {
	switch x := s.unsure[seq]; {
	case !x.now:
	case x.spent == 0:
		delete(s.unsure, seq)
	default:
		s.unsure[seq] = unsure{spent: x.spent}
	}
}

// LeavesUnsure reports whether the next owner would find attempts unsure by the last checkpoint, which a final one would settle.
func (s *Share) LeavesUnsure() bool { return !s.final && s.of(inFlight, unsaved, ready) > 0 }
