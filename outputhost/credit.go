package outputhost

import (
	"math"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/outputhost/inspect"
)

// Consumers of a group that grant much must not starve those that grant little: consumers take turns, which are short
// while several have credit, and one consumer may not hold so much of what the group's shares may have outstanding that
// nothing is left for the others.

const (
	// takeAtOnce and takeBytesAtOnce are what one consumer gets at most before the next one's turn, while nobody else
	// has credit …
	takeAtOnce      = 1000
	takeBytesAtOnce = 1 << 20
	// … and while others have, unless there is more for each of them.
	turnAtOnce      = 250
	turnBytesAtOnce = 256 << 10
	// leastHeld is how much a consumer may hold, however many there are.
	leastHeld = 100
)

// changesLocked counts what ends locks without a word on their consumer's stream: locks that ran out, settlements by
// token, and shares that are here no more.
func (g *group) changesLocked() uint64 {
	return g.mu.rules.Counters().Expired + g.mu.byToken + g.mu.dropped
}

// holdsLocked is how many messages a consumer holds under a lock.
func (g *group) holdsLocked(c *consumer) int {
	if g.mu.record.Spec.Delivery == core.AtMostOnce {
		return 0
	}
	if n := g.changesLocked(); n != c.holding.changes {
		c.holding = holding{lapsed: max(0, c.held-g.mu.rules.InFlightOf(c.id)), changes: n}
	}
	return max(0, c.held-c.holding.lapsed)
}

// admitLocked refuses a consumer of a group that has as many as it may have on this host.
func (g *group) admitLocked() error {
	if most := g.h.cfg.GroupConsumers; len(g.mu.consumers) >= most {
		return core.Errorf(core.CodeThrottled, "group %s has %d consumers on this host, the most it may have; close some, or let each take more messages at a time", g.name, most)
	}
	return nil
}

// mostHeldLocked is how many messages a consumer may hold: an equal part for each consumer, and one for those that
// come. A single consumer may hold all, and so may consumers of a group that delivers at most once: they settle
// nothing.
func (g *group) mostHeldLocked() int {
	n := len(g.mu.consumers)
	if n < 2 || g.mu.record.Spec.Delivery == core.AtMostOnce {
		return math.MaxInt
	}
	return max(leastHeld, dispatch.MaxOutstanding*max(1, len(g.mu.shares))/(n+1))
}

// mayHoldLocked is how many more messages a consumer may hold of most. Locks that have run out do not count.
func (g *group) mayHoldLocked(c *consumer, most int) int {
	if most == math.MaxInt || c.held < most {
		return most - min(c.held, most)
	}
	return max(0, most-g.holdsLocked(c))
}

// creditLocked is what a consumer may be handed out now; no messages: nothing.
func (g *group) creditLocked(c *consumer, most int) dispatch.Credit {
	if c.credit.messages <= 0 || c.credit.bytes <= 0 {
		return dispatch.Credit{}
	}
	// A consumer that holds nothing gets a message that is larger than its window. A window of twice what is taken at
	// once has room for any.
	oversize := c.held == 0 || c.credit.bytes < 2*takeBytesAtOnce && g.holdsLocked(c) == 0
	return dispatch.Credit{Messages: min(c.credit.messages, g.mayHoldLocked(c, most)), Bytes: c.credit.bytes, Oversize: oversize}
}

// takersLocked are the consumers and pulls, and one pull more shortly after the last.
func (g *group) takersLocked(now time.Time) inspect.Takers {
	t := inspect.Takers{All: len(g.mu.consumers) + len(g.mu.pulls), Credit: len(g.mu.pulls), Throttled: true}
	if g.h.elapsed(now)-g.mu.pulled < pullAgain {
		t.All, t.Credit = t.All+1, t.Credit+1
	}
	if t.Credit > 0 {
		t.Throttled = g.mu.rules.Throttled(pullSession)
	}
	most := g.mostHeldLocked()
	for _, c := range g.mu.consumers {
		if c.credit.messages > 0 && c.credit.bytes > 0 && !c.s.mux.Conn.Full() && g.mayHoldLocked(c, most) > 0 {
			t.Credit++
			t.Throttled = t.Throttled && g.mu.rules.Throttled(c.id)
		}
	}
	t.Throttled = t.Throttled && t.Credit > 0
	return t
}
