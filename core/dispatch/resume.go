package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
)

// resumeTransfer goes on with what an earlier owner began. The queue may have the message already, unless that owner
// says that it is here only.
func (s *Share) resumeTransfer(seq core.Seq, m *message, e entry) {
	x := s.transferOf(seq)
	x.to, x.reason, x.deliverAt = e.to, e.reason, e.due
	if e.due > 0 {
		x.due = s.group.nanos(time.UnixMilli(e.due))
	}
	if !e.held {
		x.suspect(s.group.now)
	}
	switch {
	case !x.wanted(&s.group.spec): // the group was changed
		s.unwanted(seq, m)
	case e.held:
		s.leave(seq, m, x.to, x.due)
	case routes[x.to].early:
		s.enqueue(seq, m, x)
	default:
		s.keepUntil(seq, m, x, x.certain)
	}
}

// rejudgeTransfer judges a message again that the group does not want where it is going, if it is here only.
func (s *Share) rejudgeTransfer(seq core.Seq, m *message) {
	if x := s.table.note(seq).transfer; !x.mayBeThere && !x.wanted(&s.group.spec) {
		s.unwanted(seq, m)
	}
}

// unwanted judges a message by the rules of a group that were changed. One that has expired is dropped: it was on its
// way only for that, and perhaps nobody ever got it.
func (s *Share) unwanted(seq core.Seq, m *message) {
	if m.failure == Expired {
		s.settle(seq, m)
		return
	}
	s.judge(seq, m, 0)
}

// rebuildTransfer takes over the transfer of a message whose share is put together anew.
func (s *Share) rebuildTransfer(seq core.Seq, m *message, was phase) {
	x := s.table.note(seq).transfer
	switch was {
	case leaving, announced:
		s.leave(seq, m, x.to, x.due)
	case held:
		s.keepUntil(seq, m, x, m.due)
	case appending:
		if s.lent[seq] != nil {
			s.step(seq, m, x, appending)
			return
		}
		x.suspect(s.group.now)
		s.enqueue(seq, m, x)
	default:
		s.enqueue(seq, m, x)
	}
}

// Appends reports whether the outcome of a transfer that TakeTransfers yielded is missing.
func (g *Group) Appends() bool {
	for _, s := range g.shares {
		if s.of(appending) > 0 {
			return true
		}
	}
	return false
}

// TransfersWait reports whether TakeTransfers may have something to yield.
func (g *Group) TransfersWait(to Destination) bool { return g.transfers[to].len() > 0 }
