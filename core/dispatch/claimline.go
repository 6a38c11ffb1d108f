package dispatch

import (
	"math"
	"slices"

	"github.com/columbamq/columba/core"
)

// claimLine is what waits to be claimed until there is credit, in the order in which it is.
type claimLine struct {
	unclaimed queue[messageRef] // phase unclaimed, with bytes; others are skipped
	shares    queue[*Share]     // that may claim messages of their supplies, each once; others are dropped
	supplied  bool              // the last claim was of a supply
	claiming  bool              // claimRetries is under way
}

// awaitCredit has a message in phase unclaimed wait, behind those that wait already.
func (g *Group) awaitCredit(s *Share, seq core.Seq) {
	if g.line == nil {
		g.line = new(claimLine)
	}
	g.line.unclaimed.push(messageRef{s, seq})
}

// waits are the messages that wait for credit, and some that do not any more.
func (l *claimLine) waits() []messageRef {
	if l == nil {
		return nil
	}
	return l.unclaimed.all()
}

// has reports whether a message waits.
func (l *claimLine) has(s *Share, seq core.Seq) bool {
	return slices.Contains(l.waits(), messageRef{s, seq})
}

// lineUp has the share wait for its turn to claim, if it has something to claim.
func (s *Share) lineUp() {
	if s.inLine || !s.mayClaim() {
		return
	}
	g := s.group
	if g.line == nil {
		g.line = new(claimLine)
	}
	s.inLine = true
	g.line.shares.push(s)
}

// unlimited is the credit of a group of which none is known.
var unlimited = Credit{Messages: math.MaxInt, Bytes: math.MaxInt}

// claims is what is claimed and not handed out, without a message that waits for an idle session: credit alone does not
// bring that further.
func (g *Group) claims() claimCount {
	c := g.claimed
	if a := g.isolation; a != nil && a.counted.share != nil {
		s := a.counted.share
		if m := s.table.get(a.counted.seq); m != nil && s.isClaimed(m) {
			c.messages--
			c.bytes -= m.batch.sizeAt(s.place(m.batch, a.counted.seq))
		}
	}
	return c
}

// room is what may be claimed yet. While nothing is claimed one message may be, of whatever size.
func (g *Group) room() budget {
	c := g.claims()
	b := budget{messages: g.credit.Messages - c.messages, bytes: g.credit.Bytes - c.bytes}
	if c.messages == 0 {
		b.largest = AnySize
	}
	return b
}

// spend takes what was handed out off the credit, and claims what may be claimed now.
func (g *Group) spend(messages, bytes int) {
	g.credit.Messages, g.credit.Bytes = max(0, g.credit.Messages-messages), max(0, g.credit.Bytes-bytes)
	g.claimRetries()
}

// claimRetries claims as much of what waits as there is credit for: retries in the order in which they came to wait,
// and with each second claim a message of a supply, of the shares in turn. The next one waits for its turn also while
// it is too large for the bytes left, so no message has to let smaller ones go before it for ever. One that comes to
// wait meanwhile, since a share comes to a message that is to be isolated, is claimed by the call under way.
func (g *Group) claimRetries() {
	l := g.line
	if l == nil || l.claiming || bool(g.paused) {
		return
	}
	l.claiming = true
	for left := g.room(); left.messages > 0 && !left.stopped && l.unclaimed.len()+l.shares.len() > 0; {
		if l.shares.len() > 0 && (!l.supplied || l.unclaimed.len() == 0) {
			l.claimSupplied(&left)
		} else {
			l.claimUnclaimed(&left)
		}
	}
	l.claiming = false
}

// claimUnclaimed claims the retry that waits for longest.
func (l *claimLine) claimUnclaimed(left *budget) {
	ref := *l.unclaimed.front()
	s, m := ref.share, ref.share.table.get(ref.seq)
	if m == nil || m.phase != unclaimed || m.batch == nil {
		l.unclaimed.pop()
		return
	}
	if !s.group.isolation.isNext(s, ref.seq) {
		size := m.batch.sizeAt(s.place(m.batch, ref.seq))
		if !left.fits(size) {
			return
		}
		left.spend(1, size)
		l.supplied = false
	}
	l.unclaimed.pop()
	s.change()
	s.move(ref.seq, m, unsaved)
	s.pending.push(saving{seq: ref.seq})
	s.lineUp()
}

// claimSupplied claims messages of the supply of the share that has its turn: one, or in a group that delivers at most
// once as many as there is credit for.
func (l *claimLine) claimSupplied(left *budget) {
	s := *l.shares.front()
	if s.mayClaim() {
		most := 1
		if s.group.atMostOnce() {
			most = min(s.claimPolicy().admit(left.messages), s.roomForFirsts())
		}
		if s.claimNext(most, left); left.stopped { // it keeps its turn
			return
		}
		l.supplied = true
	}
	l.shares.pop()
	s.inLine = false
	s.lineUp()
}

// forgetClaims forgets what is claimed of a share, and what waits.
func (g *Group) forgetClaims(s *Share) {
	s.inLine = false
	if l := g.line; l != nil {
		l.unclaimed.filter(func(ref *messageRef) bool { return ref.share != s })
		l.shares.filter(func(x **Share) bool { return *x != s })
	}
	if s.of(unsaved, ready) > 0 {
		s.table.each(func(seq core.Seq, m *message) {
			if s.isClaimed(m) {
				s.countClaims(seq, m, -1)
			}
		})
	}
}
