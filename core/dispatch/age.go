package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
)

// A message that was never handed out is subject to its age: the time since its batch was appended. One that was, is not, whatever
// became of the delivery, nor is one that was merged into the group. A message that expires is not handed out after that, for the first time or again.

// look applies the rules of age to the oldest buffered messages: those the group skips are settled. It sets the deadline at which it has
// to be done again. What is behind the oldest waits for it: append times never go back within an extent.
func (s *Share) look() {
	spec := &s.group.spec
	opens := s.resumes()
	alarm := opens
	for (spec.Delay > 0 || spec.SkipOlder > 0) && s.buffered > 0 && !s.merged {
		s.skipBatches()
		b := *s.batches.front()
		if at := s.visibleAt(b); at > s.group.now {
			opens, alarm = at, at
		}
		if spec.SkipOlder > 0 {
			last := b.Enqueued*1000 + int64(spec.SkipOlder)
			if last < s.group.now {
				opens, alarm = 0, 0
				s.skip(b)
				continue
			}
			if alarm == 0 || last < alarm {
				alarm = last + 1
			}
		}
		break
	}
	s.opens = opens
	if alarm == s.alarm {
		return
	}
	if s.alarm = alarm; alarm > 0 {
		s.group.wakeAt(s, 0, alarm)
	}
}

// skip settles the buffered messages of the first batch: nobody is to see them.
func (s *Share) skip(b *batch) {
	for seq := max(s.cursor, b.first); seq <= b.last; {
		n := int(b.last-seq) + 1
		if s.top >= seq || s.done.Top() >= seq {
			if seq, n = s.clean(b, seq, n); n == 0 {
				break
			}
		}
		s.group.counters.Skipped += s.unseen(b, seq, n)
		seq += core.Seq(n)
	}
	s.cursor = b.last + 1
}

// unseen settles n buffered messages of a batch from seq on and returns how many they are.
func (s *Share) unseen(b *batch, seq core.Seq, n int) uint64 {
	i := int(seq - b.Base)
	s.buffered -= n
	s.unref(b, n, int(b.Offsets[i+n]-b.Offsets[i]))
	s.changed = true
	return s.done.AckRange(seq, uint64(n))
}

// lapsed reports whether a message that is held has expired.
func (s *Share) lapsed(b *batch, seq core.Seq) bool {
	if b.Expire == nil {
		return false
	}
	at := b.Expire[s.place(b, seq)]
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
	s.changed = true
	s.leave(seq, m, DeadLetterQueue, 0)
}

// lapseUnseen ends a buffered message that has expired.
func (s *Share) lapseUnseen(b *batch, seq core.Seq) {
	if s.group.spec.Expired != core.ExpiredDLQ {
		s.group.counters.Lapsed += s.unseen(b, seq, 1)
		return
	}
	s.buffered--
	m := s.table.put(seq)
	m.batch = b
	s.lapse(seq, m)
}

// visibleAt is when the group's delay lets the messages of a batch go, ns.
func (s *Share) visibleAt(b *batch) int64 { return b.Enqueued*1000 + int64(s.group.spec.Delay) }

// kept counts the buffered messages that the group's delay keeps back.
func (s *Share) kept() int {
	if s.group.spec.Delay == 0 || s.buffered == 0 || s.merged {
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

// KeepsBack reports whether the group's delay keeps a message back that nobody has read here and that was enqueued then, unix µs.
func (s *Share) KeepsBack(enqueued int64, now time.Time) bool {
	return !s.merged && enqueued*1000+int64(s.group.spec.Delay) > now.UnixNano()
}

// KeptBack reports whether the group's delay keeps back what was read last, and so what was not read yet.
func (s *Share) KeptBack() bool {
	return s.group.spec.Delay > 0 && s.buffered > 0 && !s.merged && s.visibleAt(*s.batches.back()) > s.group.now
}
