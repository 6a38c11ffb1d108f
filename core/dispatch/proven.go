package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
)

// provenMost is the size of a checkpoint's window above which TakesProven lets no more acks of unread messages add to
// it. Consumers name those: the room that is left is for what the share hands out, as nothing else closes the holes.
const provenMost = fullAt / 2

// TakesProven reports whether AckProven takes a message: one that this owner has not read makes a hole in what is done,
// and there is room for so many of those only. Once the owner has read the message, it is taken.
func (s *Share) TakesProven(seq core.Seq) bool {
	return seq < s.next || s.table.get(seq) != nil || s.done.SizeMost() < provenMost
}

// AckProven settles one message whose delivery, by any owner in the current epoch, the caller has verified (an ack
// token, a forwarded ack): also one this owner has not read or handed out yet. It reports false when it was settled
// before, see tooLate. In a group that delivers at most once it does nothing.
func (s *Share) AckProven(seq core.Seq, now time.Time) bool {
	if s.group.atMostOnce() {
		return true
	}
	if m := s.table.get(seq); m != nil && s.tooLate(seq, m) {
		return false
	}
	return s.ackProven(seq, now)
}

func (s *Share) ackProven(seq core.Seq, now time.Time) bool {
	s.group.at(now)
	if s.done.Done(seq) || seq == 0 || s.gone {
		return false
	}
	s.group.counters.Acked++
	s.group.succeeded(1)
	if m := s.table.get(seq); m != nil {
		s.group.acked(m.session)
	}
	s.settleAnywhere(seq)
	s.wake()
	return true
}
