package dispatch

import "github.com/columbamq/columba/core"

// A message that was never handed out is subject to its age: the time since its batch was appended. One that was, is not, whatever
// became of the delivery.

// look applies the rules of age to the oldest buffered message, and sets the deadline at which it has to be looked at again. What is
// behind it waits for it, so that messages begin in their order even when a clock was set back between them.
func (s *Share) look() {
	opens := int64(0)
	if s.group.spec.Delay > 0 && s.buffered > 0 {
		s.skipBatches()
		if at := s.visibleAt(*s.batches.front()); at > s.group.now {
			opens = at
		}
	}
	if opens == s.opens {
		return
	}
	if s.opens = opens; opens > 0 {
		s.group.wakeAt(s, 0, opens)
	}
}

// visibleAt is when the group's delay lets the messages of a batch go, ns.
func (s *Share) visibleAt(b *batch) int64 { return b.Enqueued*1000 + int64(s.group.spec.Delay) }

// kept counts the buffered messages that the group's delay keeps back.
func (s *Share) kept() int {
	if s.group.spec.Delay == 0 || s.buffered == 0 {
		return 0
	}
	kept := s.buffered
	s.skipBatches()
	for _, b := range s.batches.all() {
		if s.visibleAt(b) > s.group.now {
			break
		}
		kept -= s.bufferedOf(b)
	}
	return kept
}

// bufferedOf counts the buffered messages of a batch.
func (s *Share) bufferedOf(b *batch) (n int) {
	if first := max(s.cursor, b.first); s.top < first && s.done.Top() < first {
		return int(b.last-first) + 1
	}
	for seq := max(s.cursor, b.first); seq <= b.last; seq++ {
		if s.fresh(seq) {
			n++
		}
	}
	return n
}

// fresh reports whether a message at or above the cursor, that was read, is buffered.
func (s *Share) fresh(seq core.Seq) bool { return !s.done.Done(seq) && s.table.get(seq) == nil }

// KeptBack reports whether the group's delay keeps back what was read last, and so what was not read yet.
func (s *Share) KeptBack() bool {
	return s.group.spec.Delay > 0 && s.buffered > 0 && s.visibleAt(*s.batches.back()) > s.group.now
}
