package dispatch

import (
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

const (
	// fullAt is how large a checkpoint may become by first deliveries. The rest of MaxCheckpoint is for what is there
	// then: it goes on to fail, and to be acked between others.
	fullAt = MaxCheckpoint * 3 / 4
	// entryMost is the size of an entry, in the least detail that a share should come to; of most it is less.
	entryMost = 12
)

// weight is how much a share adds to its checkpoints, as far as it is known without writing one.
type weight struct {
	entries  int // bytes of the entries of the last checkpoint
	failures int // since then, that may make one more entry each
	last     failed
}

// failed is what tells the entries of two messages that failed one after the other apart.
type failed struct {
	seq      core.Seq
	due      int64 // ms
	attempts uint16
	phase    phase
	failure  Failure
}

// weigh takes note of what a checkpoint needs for entries, and finds out whether it has room for more.
func (s *Share) weigh(needed int, done *acklevel.Window) {
	if s.weight == nil && needed == 0 {
		s.full = false
		return
	}
	if s.weight == nil {
		s.weight = new(weight)
	}
	s.weight.entries = needed
	if s.full = s.crowded(); s.full { // to the estimate: so exactly
		window, _ := done.Append(nil)
		s.full = len(window)+needed >= fullAt
	}
}

// crowded reports whether the next checkpoint may need fullAt bytes, to the estimate: without texts and metadata, and
// without the locks of first attempts, since it does without those.
func (s *Share) crowded() bool {
	n := s.table.n - s.of(inFlight, handed) + int(s.repeats)
	return s.done.SizeMost()+min(n*entryMost, s.weight.entries+s.weight.failures*entryMost) >= fullAt
}

// weighs notes that a message has failed.
func (s *Share) weighs(seq core.Seq, m *message) {
	if m.phase == none { // it was settled
		return
	}
	if s.weight == nil {
		s.weight = &weight{entries: MaxCheckpoint} // not known: then the number of messages tells
	}
	before, now := s.weight.last, failed{seq, milli(m.due), m.attempts, m.phase, m.failure}
	s.weight.last = now
	if before.seq++; before == now { // one entry tells of both
		return
	}
	s.weight.failures++
	s.full = s.full || s.crowded()
}
