package outputhost

import (
	"time"

	"github.com/columbamq/columba/core/dispatch"
)

// credits are the consumers of a group that have credit, in the order of their turns. The group's mutex's.
//
//	demand == Σ consumers' demands;  takers == consumers with a demand
//	a consumer with a demand is in waiting, unless its connection is full
type credits struct {
	waiting line
	demand  dispatch.Credit
	takers  int
	most    int         // how many messages one may hold, as the demands were counted; 0: they are to be counted anew
	capped  []*consumer // that hold as many: they may hold more when locks run out …
	changes uint64      // … see changesLocked
	closing []*consumer // that have left: the next pump answers their close
}

// creditsLocked makes the credits of a group that had none.
func (g *group) creditsLocked() *credits {
	if g.mu.credits == nil {
		g.mu.credits = new(credits)
	}
	return g.mu.credits
}

// line is the consumers that wait, in their order, linked by their ahead and behind.
type line struct {
	first, last *consumer
	length      int
}

func (l *line) push(c *consumer) {
	if c.ahead = l.last; c.ahead == nil {
		l.first = c
	} else {
		c.ahead.behind = c
	}
	l.last = c
	l.length++
}

// remove takes a consumer out that is in line.
func (l *line) remove(c *consumer) {
	if c.ahead == nil {
		l.first = c.behind
	} else {
		c.ahead.behind = c.behind
	}
	if c.behind == nil {
		l.last = c.ahead
	} else {
		c.behind.ahead = c.ahead
	}
	c.ahead, c.behind = nil, nil
	l.length--
}

// countCreditLocked counts anew what a consumer would take, and gives it a turn if that is something. It follows every
// change of the consumer's credit, and of how many messages it holds.
func (g *group) countCreditLocked(c *consumer) {
	x := g.mu.credits
	if x == nil {
		return
	}
	n := 0
	if !c.left && c.credit.messages > 0 && c.credit.bytes > 0 && x.most > 0 {
		n = min(c.credit.messages, g.mayHoldLocked(c, x.most))
		if c.held >= x.most && !c.capped {
			c.capped = true
			x.capped = append(x.capped, c)
		}
	}
	var now dispatch.Credit
	if n > 0 {
		now = dispatch.Credit{Messages: n, Bytes: c.credit.bytes}
	}
	if before := c.demand; now != before {
		x.demand.Messages += now.Messages - before.Messages
		x.demand.Bytes += now.Bytes - before.Bytes
		c.demand = now
		switch {
		case before.Messages == 0:
			x.takers++
		case n == 0:
			x.takers--
		}
	}
	if n > 0 && !c.queued && !c.full {
		c.queued = true
		x.waiting.push(c)
	}
}

// countCreditsLocked counts those anew that may take another number of messages than when they were counted: all of
// them when consumers or shares came or went, else those that hold as much as they may.
func (g *group) countCreditsLocked(now time.Time) {
	if len(g.mu.consumers) == 0 {
		return
	}
	x := g.creditsLocked()
	changes := g.changesLocked()
	if most := g.mostHeldLocked(now); most != x.most {
		x.most, x.changes = most, changes
		for _, c := range x.capped {
			c.capped = false
		}
		clear(x.capped)
		x.capped = x.capped[:0]
		for _, c := range g.mu.consumers {
			g.countCreditLocked(c)
		}
		return
	}
	if changes == x.changes {
		return
	}
	x.changes = changes
	capped := x.capped
	x.capped = nil
	for _, c := range capped {
		c.capped = false
		g.countCreditLocked(c)
	}
}

// demandLocked is how much all consumers and pulls together would take now, as they were counted.
func (g *group) demandLocked() (d dispatch.Credit) {
	if !g.wantedLocked() {
		return d
	}
	if g.mu.credits != nil {
		d = g.mu.credits.demand
	}
	g.mu.rules.EachRefused(func(id dispatch.SessionID) {
		if c := g.consumerLocked(id); c != nil {
			d.Messages -= c.demand.Messages
			d.Bytes -= c.demand.Bytes
		}
	})
	if g.mu.pulls.number() == 0 || g.mu.rules.Throttled(pullSession) {
		return d
	}
	if left := g.mayPullLocked(); left > 0 {
		d.Messages += min(g.mu.pulls.wants, left)
		d.Bytes += maxPullBytes * min(g.mu.pulls.number(), left)
	}
	return d
}

// turnLocked is the length of a turn. While several consumers have credit turns are short, so that none of them takes
// all that there is. They are longer when there is more for each of them, read or known to be in the extent: fewer
// writes carry the same messages. While many connections leave their deliveries unread, a turn has no more bytes than a
// connection may have unread.
func (g *group) turnLocked() (messages, bytes int) {
	x := g.mu.credits
	messages, bytes = takeAtOnce, takeBytesAtOnce
	if x.takers > 1 {
		waiting, next := g.mu.rules.Waiting()
		if next != nil && !shareOf(next).timers() { // the unread messages of a timer extent may not be due
			waiting += int(min(next.Unread(shareOf(next).last), uint64(takeAtOnce*x.takers)))
		}
		messages = min(max(waiting/x.takers, turnAtOnce), takeAtOnce)
		bytes = turnBytesAtOnce / turnAtOnce * messages
	}
	return messages, min(bytes, max(g.h.unread.Room(0), turnBytesAtOnce))
}

// takeTurnsLocked gives each consumer that has credit one turn, as long as there is something to hand out. The next
// pump goes on with those that had none.
func (g *group) takeTurnsLocked(take func(c *consumer, credit dispatch.Credit)) {
	x := g.mu.credits
	if x == nil {
		return
	}
	messages, bytes := g.turnLocked()
	for range x.waiting.length {
		if !g.mu.rules.Ready() {
			return
		}
		c := x.waiting.first
		x.waiting.remove(c)
		c.queued = false
		credit := g.creditLocked(c, x.most)
		if credit.Messages <= 0 { // it has a turn again when it is counted
			continue
		}
		if c.full = c.s.full(c); c.full {
			continue
		}
		credit.Messages, credit.Bytes = min(credit.Messages, messages), min(credit.Bytes, bytes)
		take(c, credit)
		g.countCreditLocked(c)
	}
}

// emptied gives the consumer, whose connection was full, its turns again.
func (c *consumer) emptied(g *group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.full = false
	g.countCreditLocked(c)
}

// forgetCreditLocked ends the turns of a consumer that leaves.
func (g *group) forgetCreditLocked(c *consumer) {
	c.left = true
	g.countCreditLocked(c)
	if c.queued {
		c.queued = false
		g.mu.credits.waiting.remove(c)
	}
}
