package dispatch

import (
	"math"

	"github.com/columbamq/columba/core"
)

// claimAtOnce bounds a claim.
const claimAtOnce = 512

// claim keeps first deliveries of a share back while others are claimed: messages that a checkpoint has to count, or to
// settle, before they are handed out. Those are the messages of a group that delivers at most once, and those that came
// back from the retry queue, since these are retries. A share claims as many as a consumer waits for, at most
// claimAtOnce, and the next ones when those were handed out; so a crash of the owner costs no more than these an
// attempt, or in a group that delivers at most once their delivery. A message that waits to be isolated does not count,
// so nothing else of its share waits for an idle session. It is not saved: the next owner claims anew.
//
// Its scope is one share, and it has no deadline: a checkpoint, or a delivery, ends the wait.
type claim struct {
	waiting int // claimed, and not handed out
}

// admit is how many messages the share may claim now.
func (c claim) admit(most int) int {
	if c.waiting > 0 {
		return 0
	}
	return min(most, claimAtOnce)
}

// claims reports whether the share's messages are claimed before they are handed out.
func (s *Share) claims() bool { return s.group.atMostOnce() || s.returning }

// claimPolicy is the claim of the share as it stands.
func (s *Share) claimPolicy() claim {
	return claim{waiting: s.of(unclaimed, unsaved, ready) - s.group.isolation.counts(s)}
}

// The number of a retry's next attempt is durable before it is handed out: that is a claim, too. Should the owner die
// then, whoever follows has to take what was claimed for handed out. So no more is claimed than consumers would take: a
// retry waits (unclaimed) until there is credit for it, and is then counted by the next checkpoint (unsaved).

// claimRetries claims as many of the retries that wait as there is credit for, in the order in which they came to wait.
func (g *Group) claimRetries() {
	if g.unclaimed.len() == 0 || bool(g.paused) {
		return
	}
	for room := g.credit - g.claims(); room > 0 && g.unclaimed.len() > 0; {
		s, seq := g.unclaimed.front().share, g.unclaimed.front().seq
		if g.cameBack = !g.cameBack && s.claimReturned(); g.cameBack {
			room--
			continue
		}
		g.unclaimed.pop()
		if m := s.table.get(seq); m != nil && m.phase == unclaimed && m.batch != nil {
			s.claimRetry(seq, m)
			room--
		}
	}
}

// claimReturned claims a message that came back from the retry queue and was not handed out since, and reports whether
// there was one. It has each second claim beside retries of its share: those keep the share claiming, so that with
// little credit, and messages that fail at once, it would never come to the others.
func (s *Share) claimReturned() bool {
	return s.returning && s.hasRoom() && s.claimNext(budget{messages: 1, bytes: math.MaxInt}) > 0
}

func (s *Share) claimRetry(seq core.Seq, m *message) {
	s.change()
	s.move(m, unsaved)
	s.pending.push(saving{seq: seq})
}

// isClaimed reports whether messages of the phase are claimed and not handed out.
func (p phase) isClaimed() bool { return p == unsaved || p == ready }

// claims is how many retries are claimed and not handed out, without one that waits for an idle session: credit alone
// does not bring that further.
func (g *Group) claims() int {
	n := int(g.claimed)
	if g.isolation != nil && g.isolation.counted.share != nil {
		n--
	}
	return max(0, n)
}
