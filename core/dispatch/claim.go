package dispatch

import (
	"math"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// claimAtOnce bounds what a share has claimed of its supply.
const claimAtOnce = 512

// claim keeps messages back until a checkpoint has counted, or settled, them: all messages of a group that delivers at
// most once, those that came back from the retry queue, and all other retries. Should the owner die before it hands
// them out, whoever follows has to take what was claimed for handed out. So all shares together claim no more than
// consumers would take now: a claimed message that is not handed out takes its part of the credit, in messages and in
// bytes. Of its supply a share claims claimAtOnce at most, so a crash of the owner costs no more than these an attempt,
// or in a group that delivers at most once their delivery. Messages that came back are claimed one for each that was
// handed out: else those of a claim would wait for their checkpoint and for their turns before the next ones begin to.
// In a group that delivers at most once each claim is a write of its own, so the next ones are claimed when those were
// handed out. A message that waits to be isolated does not count, so nothing else waits for an idle session. It is not
// saved: the next owner claims anew.
//
// Its scope is one share, within the credit of the group, and it has no deadline: a checkpoint, or a delivery, ends the
// wait.
type claim struct {
	waiting int  // claimed, and not handed out
	alone   bool // one claim at a time
}

// admit is how many messages of its supply the share may claim now, as far as the group has credit.
func (c claim) admit(most int) int {
	if c.alone && c.waiting > 0 {
		return 0
	}
	return min(most, max(0, claimAtOnce-c.waiting))
}

// claims reports whether the share's messages are claimed before they are handed out for the first time here.
func (s *Share) claims() bool { return s.group.atMostOnce() || s.returning }

// claimPolicy is the claim of the share as it stands.
func (s *Share) claimPolicy() claim {
	return claim{waiting: s.of(unclaimed, unsaved, ready) - s.group.isolation.counts(s), alone: s.group.atMostOnce()}
}

// mayClaim reports whether the share may claim a message of its supply when the group has credit.
func (s *Share) mayClaim() bool { return s.claims() && s.hasRoom() && s.claimPolicy().admit(1) > 0 }

// saving is a retry that waits for the checkpoint of token.
type saving struct {
	seq   core.Seq
	token uint64
}

// claimCount counts messages that are claimed and not handed out.
type claimCount struct{ messages, bytes int }

// isClaimed reports whether a message is claimed and not handed out. One that came back unseen from its first attempt
// needs no claim: a crash costs it nothing. One whose bytes are to be read again counts when they come, since credit
// brings it no further before.
func (s *Share) isClaimed(m *message) bool {
	return (m.phase == unsaved || m.phase == ready) && (m.attempts > 0 || s.group.atMostOnce()) && m.batch != nil
}

// countClaims counts n more messages in a row of a batch, or with n -1 one less.
func (s *Share) countClaims(seq core.Seq, m *message, n int) {
	c, i := &s.group.claimed, s.place(m.batch, seq)
	c.messages += n
	if n < 0 {
		c.bytes -= m.batch.sizeAt(i)
	} else {
		c.bytes += int(m.batch.Offsets[i+n] - m.batch.Offsets[i])
	}
}

// claimNext claims up to most of the next messages of the supply.
func (s *Share) claimNext(most int, left *budget) {
	for most > 0 && s.supply.ready() {
		c := s.supply.choose(most, math.MaxInt, left)
		if left.stopped {
			return
		}
		s.change()
		if c.count > 0 {
			s.supply.begin(c, message{phase: unsaved})
			for i := range c.count {
				s.pending.push(saving{seq: c.first + core.Seq(i)})
			}
			left.spend(c.count, c.size)
			most -= c.count
		}
		s.look()
	}
}

// In a group that delivers at most once a message is done, durably, before it is handed out. A checkpoint says that
// claimed messages (unsaved) are done. When it is saved they are ready; then they are handed out, once and without a
// lock, and settled. The caller sees to it that no other checkpoint replaces this one: see outputhost/claims, adr/0013.

// atMostOnce reports whether the group delivers at most once.
func (g *Group) atMostOnce() bool { return g.spec.Delivery == core.AtMostOnce }

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
			s.move(seq, m, unsaved)
			s.pending.push(saving{seq: seq})
		}
	})
	s.retries, s.firsts = queue[core.Seq]{}, queue[core.Seq]{}
}

// claimed is what is done, and what may be handed out once the checkpoint that says so is durable; with all also what
// waits for it.
func (s *Share) claimed(all bool) *acklevel.Window {
	out := s.done.Clone()
	s.table.each(func(seq core.Seq, m *message) {
		if m.phase == ready || m.phase == unsaved && all {
			out.Ack(seq)
		}
	})
	return out
}

// uncount has the retries that may be handed out wait for a checkpoint again.
func (s *Share) uncount() {
	if s.of(unsaved, ready) == 0 {
		return
	}
	s.uncountAlone()
	s.retries.filter(func(seq *core.Seq) bool {
		m := s.table.get(*seq)
		return m != nil && m.phase == ready && m.attempts == 0
	})
	s.table.each(func(seq core.Seq, m *message) {
		if (m.phase == unsaved || m.phase == ready) && m.attempts > 0 {
			s.await(seq, m)
		}
	})
	s.dropClaims()
}

// retractClaims has retries wait for credit again that the checkpoint has no room for: written are its entries. Others
// are claimed before them, which the next one may have room for. A checkpoint before may not do for them: this one
// replaces it.
func (s *Share) retractClaims(written []entry) {
	s.pending.filter(func(p *saving) bool {
		m := s.table.get(p.seq)
		switch {
		case p.token == 0 || holds(written, p.seq):
			return true
		case m == nil || m.phase != unsaved:
			return false
		case s.group.atMostOnce():
			p.token = 0
			return true
		case m.attempts == 0: // nothing of it is to be counted
			return true
		}
		s.move(p.seq, m, unclaimed)
		s.waitsNacked(p.seq, m)
		if m.batch != nil {
			s.group.awaitCredit(s, p.seq)
		}
		return false
	})
}

// dropClaims forgets the claims of messages that are not claimed any more. They must not count for a later claim of
// the same message: another checkpoint holds that.
func (s *Share) dropClaims() {
	s.pending.filter(func(p *saving) bool {
		m := s.table.get(p.seq)
		return m != nil && m.phase == unsaved
	})
}
