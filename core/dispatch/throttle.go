package dispatch

import (
	"math"
	"time"
)

const (
	freeNacks        = 20 // in a row cost nothing
	throttledAtOnce  = 10 // messages between two pauses, at most; the pause doubles once so many have come back
	minThrottlePause = 50 * time.Millisecond
	maxThrottlePause = 5 * time.Second
)

// throttle slows down a session that nacks whatever it gets. After 20 nacks in a row the session gets ten messages at a
// time, and nothing in the pause after them. The pause is 50 ms at first, and doubles up to 5 s with each pause after
// which ten nacks have come back. More do not count: a session that held a thousand messages is told by its next
// pauses, like one that held ten. An ack of anything ends the throttling. It is not saved: sessions end with their
// owner.
//
// Its scope is one session; all unary pulls of a group are one.
type throttle struct {
	paces map[SessionID]pace // of those that nacked since their last ack; nil: none ever did
}

// pace is how fast a session gets messages.
type pace struct {
	nacks int           // in a row
	since int           // of these, since the pause doubled
	taken int           // since the last pause, < throttledAtOnce
	pause time.Duration // the last one; 0: there was none
	until int64         // ns: nothing before
}

// admit is how many messages a session may be handed out now.
func (t *throttle) admit(sc scope, now int64) int {
	if len(t.paces) == 0 || sc.group {
		return math.MaxInt
	}
	p, ok := t.paces[sc.session]
	switch {
	case !ok || p.nacks <= freeNacks:
		return math.MaxInt
	case p.until > now:
		return 0
	}
	return throttledAtOnce - p.taken
}

// outcome counts a nack of a session, or ends its throttling by an ack.
func (t *throttle) outcome(sc scope, o outcome) {
	if o.successes > 0 {
		delete(t.paces, sc.session)
		return
	}
	if t.paces == nil {
		t.paces = map[SessionID]pace{}
	}
	p := t.paces[sc.session]
	p.nacks++
	p.since++
	t.paces[sc.session] = p
}

// handed has a throttled session pause after so many messages, however many it takes at a time.
func (t *throttle) handed(sc scope, n int, now int64) {
	if len(t.paces) == 0 {
		return
	}
	p, ok := t.paces[sc.session]
	if !ok || p.nacks <= freeNacks {
		return
	}
	if p.taken += n; p.taken < throttledAtOnce {
		t.paces[sc.session] = p
		return
	}
	p.taken = 0
	switch {
	case p.pause == 0:
		p.pause, p.since = minThrottlePause, 0
	case p.since >= throttledAtOnce:
		p.pause, p.since = min(2*p.pause, maxThrottlePause), 0
	}
	p.until = now + int64(p.pause)
	t.paces[sc.session] = p
}

// nextDeadline is when a throttled session may be given something again, of those that wait for it.
func (t *throttle) nextDeadline(now int64) int64 {
	next := never
	for _, p := range t.paces {
		if p.until > now {
			next = min(next, p.until)
		}
	}
	return next
}

// nacked counts a nack of a session. Nobody is given anything as an earlier session, or as one that has left.
func (g *Group) nacked(session SessionID) {
	if s := g.sessions.get(session); s != nil && s.present && !g.spec.NoNackThrottle {
		g.throttle.outcome(scopeOf(session), outcome{})
	}
}

// acked ends the throttling of a session. Frequent: looks for one only if any has nacked.
func (g *Group) acked(session SessionID) {
	if len(g.throttle.paces) > 0 {
		g.throttle.outcome(scopeOf(session), outcome{successes: 1})
	}
}

// Throttled reports whether a session gets nothing for now, because it nacks all it gets.
func (g *Group) Throttled(session SessionID) bool {
	return g.throttle.admit(scopeOf(session), g.now) == 0
}
