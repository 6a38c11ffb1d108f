package dispatch

import (
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// In a group that delivers at most once a message is done, durably, before it is handed out. So buffered messages are claimed first: they are
// unsaved, like a retry, with no attempt; the next checkpoint says that they are done; and when that one is saved they are ready. Then
// they are handed out, once, and settled: there is no lock, and nothing is left to be nacked. A share claims a batch at a time, of what a
// consumer waits for, and the next one when that was handed out.
//
// This holds as long as no checkpoint of another owner, or of an earlier one, replaces what was saved here. To see to that is the caller's:
// see outputhost/claims.

// atMostOnce reports whether the group delivers at most once.
func (g *Group) atMostOnce() bool { return g.spec.Delivery == core.AtMostOnce }

// given is a message that was handed out and is settled with the next call.
type given struct {
	share *Share
	seq   core.Seq
}

// claim has up to a credit of messages wait for the checkpoint that says that they are done, or counts their next
// attempt.
func (s *Share) claim(messages, bytes int) {
	s.claimNext(budget{messages: s.claimPolicy().admit(messages), bytes: bytes, oversize: true})
}

// claimNext claims the next messages of the supply, and answers how many.
func (s *Share) claimNext(left budget) (n int) {
	s.change()
	for left.messages > 0 && !left.stopped && s.supply.ready() {
		c := s.supply.choose(left.messages, left.bytes, &left)
		if c.count > 0 {
			s.supply.begin(c, message{phase: unsaved})
			for i := range c.count {
				s.pending.push(saving{seq: c.first + core.Seq(i)})
			}
			left.spend(c.count, c.size)
			n += c.count
		}
		s.look()
	}
	return n
}

// give hands a claimed message out, for good.
func (s *Share) give(seq core.Seq, m *message) {
	s.move(m, handed)
	s.group.given = append(s.group.given, given{s, seq})
}

// settleGiven settles what was handed out by the call before: until then the runs' bytes had to stay.
func (g *Group) settleGiven() {
	for _, x := range g.given {
		if m := x.share.table.get(x.seq); m != nil && m.phase == handed {
			g.counters.Acked++
			x.share.settle(x.seq, m)
			x.share.wake()
		}
	}
	g.given = g.given[:0]
}

// unclaim gives back what is claimed and not handed out: it takes another claim.
func (s *Share) unclaim() {
	s.table.each(func(seq core.Seq, m *message) {
		if m.phase == ready {
			s.move(m, unsaved)
			s.pending.push(saving{seq: seq})
		}
	})
	s.retries, s.firsts = queue[core.Seq]{}, queue[core.Seq]{}
}

// claimed is what is done, and with it what may be handed out once the checkpoint that says so is durable: if all is set also what waits
// for it.
func (s *Share) claimed(all bool) *acklevel.Window {
	out := s.done.Clone()
	s.table.each(func(seq core.Seq, m *message) {
		if m.phase == ready || m.phase == unsaved && all {
			out.Ack(seq)
		}
	})
	return out
}
