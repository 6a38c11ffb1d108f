package dispatch

import (
	"math"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// claimAtOnce bounds a claim.
const claimAtOnce = 512

// claim keeps first deliveries of a share back while others are claimed: messages that a checkpoint has to count, or to
// settle, before they are handed out. Those are the messages of a group that delivers at most once, and those that came
// back from the retry queue, since these are retries. A share claims as many as a consumer waits for, at most
// claimAtOnce; so a crash of the owner costs no more than these an attempt, or in a group that delivers at most once
// their delivery. The next ones are claimed when those were handed out. Messages that came back go on sooner, one for each
// that was handed out, while there is credit for more than are claimed: else those of a claim would wait for their
// checkpoint and for their turns before the next ones begin to. A message that waits to be isolated does not count, so
// nothing else of its share waits for an idle session. It is not saved: the next owner claims anew.
//
// Its scope is one share, and it has no deadline: a checkpoint, or a delivery, ends the wait.
type claim struct {
	waiting int // claimed, and not handed out
	beside  int // how many more there is credit for; 0: none are claimed beside those
}

// admit is how many messages the share may claim now.
func (c claim) admit(most int) int {
	if c.waiting == 0 {
		return min(most, claimAtOnce)
	}
	return min(most, max(0, claimAtOnce-c.waiting), c.beside)
}

// claims reports whether the share's messages are claimed before they are handed out.
func (s *Share) claims() bool { return s.group.atMostOnce() || s.returning }

// claimPolicy is the claim of the share as it stands.
func (s *Share) claimPolicy() claim {
	c := claim{waiting: s.of(unclaimed, unsaved, ready) - s.group.isolation.counts(s)}
	if s.returning && !s.group.atMostOnce() {
		c.beside = max(0, s.group.credit-s.group.claims())
	}
	return c
}

// The number of a retry's next attempt is durable before it is handed out: that is a claim, too. Should the owner die
// then, whoever follows has to take what was claimed for handed out. So no more is claimed than consumers would take: a
// retry waits (unclaimed) until there is credit for it, and is then counted by the next checkpoint (unsaved).

// saving is a retry that waits for the checkpoint of token.
type saving struct {
	seq   core.Seq
	token uint64
}

// claimRetries claims as many of the retries that wait as there is credit for, in the order in which they came to wait.
// One that comes to wait meanwhile, since claimReturned came to a message that is to be isolated, is claimed by the call
// under way.
func (g *Group) claimRetries() { g.claimWaiting(g.credit - g.claims()) }

// claimWaiting claims up to room of them.
func (g *Group) claimWaiting(room int) {
	if g.claiming || g.unclaimed.len() == 0 || bool(g.paused) {
		return
	}
	g.claiming = true
	for room > 0 && g.unclaimed.len() > 0 {
		s, seq := g.unclaimed.front().share, g.unclaimed.front().seq
		if g.cameBack = !g.cameBack && s.claimReturned(); g.cameBack {
			room--
			continue
		}
		g.unclaimed.pop()
		if m := s.table.get(seq); m != nil && m.phase == unclaimed && m.batch != nil {
			s.change()
			s.move(m, unsaved)
			s.pending.push(saving{seq: seq})
			room--
		}
	}
	g.claiming = false
}

// claimReturned claims a message that came back from the retry queue and was not handed out since, and reports whether
// there was one. It has each second claim beside retries of its share: those keep the share claiming, so that with
// little credit, and messages that fail at once, it would never come to the others.
func (s *Share) claimReturned() bool {
	return s.returning && s.hasRoom() && s.claimNext(budget{messages: 1, bytes: math.MaxInt}) > 0
}

// claims is how many retries are claimed and not handed out, without one that waits for an idle session: credit alone
// does not bring that further.
func (g *Group) claims() int {
	n := int(g.claimed)
	if g.isolation != nil && g.isolation.counted.share != nil {
		n--
	}
	return max(0, n)
}

// In a group that delivers at most once a message is done, durably, before it is handed out. A checkpoint says that
// claimed messages (unsaved) are done. When it is saved they are ready; then they are handed out, once and without a
// lock, and settled. The caller sees to it that no other checkpoint replaces this one: see outputhost/claims, adr/0013.

// atMostOnce reports whether the group delivers at most once.
func (g *Group) atMostOnce() bool { return g.spec.Delivery == core.AtMostOnce }

// claim has up to a credit of messages wait for the checkpoint that says that they are done, or counts their next
// attempt. Each share of the retry queue does so while nothing of it is claimed, whatever others have claimed: with
// several of them there is seldom credit left for the retries that wait elsewhere. So the share of which retries have
// waited for longest does so, too.
func (s *Share) claim(messages, bytes int) {
	n := s.claimNext(budget{messages: s.claimPolicy().admit(messages), bytes: bytes, oversize: true})
	g := s.group
	if g.unclaimed.len() == 0 {
		return
	}
	if first := g.unclaimed.front().share; first.of(unsaved, ready) <= g.isolation.counts(first) {
		g.claimWaiting(n)
	}
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

// dropClaims forgets the claims of messages that are not claimed any more. They must not count for a later claim of
// the same message: another checkpoint holds that.
func (s *Share) dropClaims() {
	s.pending.filter(func(p *saving) bool {
		m := s.table.get(p.seq)
		return m != nil && m.phase == unsaved
	})
}
