package dispatch

import "github.com/columbamq/columba/core"

// The number of a retry's next attempt is durable before it is handed out: a claim. Should the owner die then, whoever
// follows has to take what was claimed for handed out. So no more is claimed than consumers would take: a retry waits
// (unclaimed) until there is credit for it, and is then counted by the next checkpoint (unsaved).

// claimRetries claims as many of the retries that wait as there is credit for, in the order in which they came to wait.
func (g *Group) claimRetries() {
	if g.unclaimed.len() == 0 || g.unwanted {
		return
	}
	for room := g.credit - g.claims(); room > 0 && g.unclaimed.len() > 0; {
		s, seq := g.unclaimed.front().share, g.unclaimed.front().seq
		g.unclaimed.pop()
		if m := s.table.get(seq); m != nil && m.phase == unclaimed && m.batch != nil {
			s.claimRetry(seq, m)
			room--
		}
	}
}

func (s *Share) claimRetry(seq core.Seq, m *message) {
	s.changed = true
	s.move(m, unsaved)
	s.pending.push(saving{seq: seq})
}

// claims is how many retries are claimed and not handed out, without one that waits for an idle session: credit alone does not bring that further.
func (g *Group) claims() (n int) {
	for _, s := range g.shares {
		n += s.of(unsaved, ready)
	}
	if g.isolation != nil && g.isolation.counted.share != nil {
		n--
	}
	return max(0, n)
}

// Want says how many messages all consumers together would take now, and whether there are consumers at all: at first there are, and they take any number.
// Without consumers retries wait, and checkpoints count no attempt that was not made: a crash of the owner costs them none. What was claimed before is
// claimed again later.
func (g *Group) Want(credit int, anyone bool) {
	g.credit = credit
	if g.unwanted == anyone {
		g.unwanted = !anyone
		for _, s := range g.shares {
			s.changed = s.changed || s.count[ready]+s.count[unsaved] > 0
		}
		g.chooseNext()
	}
	g.claimRetries()
}
