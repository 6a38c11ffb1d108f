package dispatch

import (
	"math"

	"github.com/columbamq/columba/core"
)

// Turns say which share hands out next, and how much. First deliveries and retries, those that come back from the retry
// queue included, wait for their turns apart. While both wait, retries get at most one delivery in retryPart: each owes
// first deliveries the rest of its part. The debt belongs to the group and outlives a take, so any credit gets the same
// mix. Isolated messages do not wait for the debt of others: theirs is paid first. Merged shares have turns of their
// own, see mergedPart, and pay no debt of the others.
const retryPart = 5

// turnMessages and turnBytes are what a share may hand out before the next one's turn.
const (
	turnMessages = 256
	turnBytes    = 256 << 10
)

// turn is a kind of delivery.
type turn uint8

const (
	firstTurn turn = iota // never seen by an application; in a group that delivers at most once every delivery is
	retryTurn             // any other
	turnKinds
)

// turns are the shares of a class that may have something to hand out, each at most once in a kind.
type turns struct {
	waiting  [turnKinds]queue[*Share]
	owed     int  // first deliveries that go before the next retry …
	isolated int  // … and before the next isolated one, ≤ owed
	held     bool // first deliveries are held back
}

// firstsWait reports whether some share may have a first delivery to hand out.
func (t *turns) firstsWait() bool { return !t.held && t.waiting[firstTurn].len() > 0 }

// waits reports whether some share may have something to hand out.
func (t *turns) waits() bool {
	return t != nil && (t.firstsWait() || t.waiting[retryTurn].len() > 0)
}

// next takes the share out that has its turn; one must wait.
func (t *turns) next() (*Share, turn) {
	kind := firstTurn
	if t.waiting[retryTurn].len() > 0 && (t.owed == 0 || !t.firstsWait()) {
		kind = retryTurn
	}
	s := t.waiting[kind].pop()
	s.inTurn[kind] = false
	return s, kind
}

// admit bounds the messages of a turn.
func (t *turns) admit(kind turn, most int) int {
	switch {
	case kind == retryTurn && t.firstsWait():
		return max(1, min(most, turnMessages)/retryPart)
	case kind == firstTurn && t.waiting[retryTurn].len() > 0 && t.owed > 0:
		return min(most, turnMessages, t.owed)
	}
	return min(most, turnMessages)
}

// handed counts n messages of a turn.
func (t *turns) handed(kind turn, n int) {
	switch {
	case kind == firstTurn:
		t.owed, t.isolated = max(t.owed-n, 0), max(t.isolated-n, 0)
	case t.firstsWait():
		t.owed += (retryPart - 1) * n
	}
}

// handedIsolated counts an isolated message. It owes its part like every retry, but does not wait for what others owe:
// sessions that hold nothing are rare.
func (t *turns) handedIsolated() {
	if t.firstsReady() {
		t.owed += retryPart - 1
		t.isolated += retryPart - 1
	}
}

// admitsIsolated reports whether first deliveries have paid for the isolated messages so far, or none waits.
func (t *turns) admitsIsolated() bool { return t.isolated == 0 || !t.firstsReady() }

// ready reports whether a share has something to hand out.
func (t *turns) ready() bool {
	return t != nil && (t.firstsReady() || t.has(retryTurn))
}

func (t *turns) firstsReady() bool { return !t.held && t.has(firstTurn) }

// has reports whether a share has something of a kind to hand out; it drops those in front that have not.
func (t *turns) has(kind turn) bool {
	for q := &t.waiting[kind]; q.len() > 0; {
		s := *q.front()
		if s.hasTurn(kind) {
			return true
		}
		q.pop()
		s.inTurn[kind] = false
	}
	return false
}

// forget drops a share.
func (t *turns) forget(s *Share) {
	for kind := range t.waiting {
		t.waiting[kind].filter(func(x **Share) bool { return *x != s })
	}
}

// hasTurn reports whether there may be something of a kind to hand out.
func (s *Share) hasTurn(kind turn) bool {
	if kind == firstTurn {
		return s.firsts.len() > 0 || s.mayBegin()
	}
	return s.retries.len() > 0
}

// mayBegin reports whether it is the turn of what nobody was handed yet, and needs no claim: in a chain what came back
// goes before it, unless it is to be a probe of an open breaker.
func (s *Share) mayBegin() bool {
	return !s.claims() && s.hasRoom() && !(s.chained && s.retries.len() > 0 && !s.group.breaker.asksForFirst())
}

// turns is where the share waits for its turn.
func (s *Share) turns() *turns {
	of := &s.group.turns
	if s.merged {
		of = &s.group.mergedTurns
	}
	if *of == nil {
		*of = new(turns)
	}
	return *of
}

// wake gives the share its turns if it has something to hand out, or to claim.
func (s *Share) wake() {
	s.look()
	s.lineUp()
	for kind := range turnKinds {
		if !s.inTurn[kind] && s.hasTurn(kind) {
			s.inTurn[kind] = true
			s.turns().waiting[kind].push(s)
		}
	}
}

// queueReady has a message in phase ready, with bytes, wait for its turn.
func (s *Share) queueReady(seq core.Seq, m *message) {
	if m.attempts == 0 && !s.returning {
		s.firsts.push(seq)
	} else {
		s.retries.push(seq)
	}
}

// wakeChains gives the shares of a chain their turns when the breaker begins a round: it may ask for a first attempt.
func (g *Group) wakeChains() {
	if !g.breaker.asksForFirst() {
		return
	}
	for _, s := range g.shares {
		if s.chained {
			s.wake()
		}
	}
}

// Messages that were merged into the group, dead letters that get another chance, bypass its rules of age. While there
// is something else to hand out they are at most one in mergedPart: poison must not starve fresh work.
const (
	mergedPart = 4
	// mergedTurn is what a share of them may hand out before others' turns.
	mergedTurn = 64
)

// Merged makes s a share of merged messages, before anything is offered to it; rate bounds how many first deliveries it
// makes a second, 0: no bound.
func (s *Share) Merged(rate int) {
	s.merged, s.rate = true, int32(min(rate, math.MaxInt32))
}

// IsMerged reports whether the share's messages were merged into the group.
func (s *Share) IsMerged() bool { return s.merged }

// nextInTurn takes the share out that has its turn, nil when none is in turn. Merged ones wait while they owe others.
func (g *Group) nextInTurn() (*Share, turn) {
	g.holdFirsts()
	t := g.turns
	if g.mergedTurns.waits() && (!g.turns.waits() || g.owed <= 0) {
		t = g.mergedTurns
	}
	if !t.waits() {
		return nil, firstTurn
	}
	return t.next()
}

// countMerged counts n messages of a share: each merged one owes the others so many that it is its part of all.
func (g *Group) countMerged(s *Share, n int) {
	switch {
	case !s.merged:
		g.owed = max(g.owed-int32(n), 0)
	case g.turns.waits():
		g.owed += (mergedPart - 1) * int32(n)
	}
}

// turnOf bounds the messages of a share's turn: while both kinds wait, a merged one has a short turn, and the others
// until nothing is owed.
func (g *Group) turnOf(s *Share, kind turn, most int) int {
	switch {
	case s.merged && g.turns.waits():
		most = min(most, mergedTurn)
	case !s.merged && g.mergedTurns.waits() && g.owed > 0:
		most = min(most, int(g.owed))
	}
	if kind == firstTurn {
		most = min(most, g.retries.admit(firstsScope, g.now))
	}
	return s.turns().admit(kind, most)
}
