package dispatch

import "time"

// A session that fails whatever it gets is given less and less: after some nacks in a row only a few messages at a time, with pauses that
// double. An ack of anything it was given ends that.
const (
	freeNacks        = 20 // in a row cost nothing
	throttledAtOnce  = 10 // messages between two pauses; so many nacks double the pause
	minThrottlePause = 50 * time.Millisecond
	maxThrottlePause = 5 * time.Second
)

// pace is how fast a session gets messages.
type pace struct {
	nacks int   // in a row
	until int64 // ns: nothing before
}

// most is how many messages a session may be handed out now.
func (g *Group) most(session SessionID, messages int) int {
	if len(g.paces) == 0 {
		return messages
	}
	p, ok := g.paces[session]
	switch {
	case !ok || p.nacks <= freeNacks:
		return messages
	case p.until > g.now:
		return 0
	}
	return min(messages, throttledAtOnce)
}

// gave notes what a session was handed out, and has a throttled one pause after it.
func (g *Group) gave(session SessionID, n int) {
	if n == 0 {
		return
	}
	if g.gaveTo != session || session == 0 { // mostly one session takes many times in a row
		if g.present == nil {
			g.present = make(map[SessionID]struct{})
		}
		g.present[session] = struct{}{}
		g.gaveTo = session
	}
	if len(g.paces) == 0 {
		return
	}
	p, ok := g.paces[session]
	if !ok || p.nacks <= freeNacks {
		return
	}
	pause := minThrottlePause
	for range (p.nacks - freeNacks) / throttledAtOnce {
		if pause *= 2; pause >= maxThrottlePause {
			pause = maxThrottlePause
			break
		}
	}
	p.until = g.now + int64(pause)
	g.paces[session] = p
}

// nacked counts a nack of a session. Nobody is given anything as an earlier session, or as one that has left.
func (g *Group) nacked(session SessionID) {
	if _, is := g.present[session]; !is || g.spec.NoNackThrottle {
		return
	}
	if g.paces == nil {
		g.paces = map[SessionID]pace{}
	}
	p := g.paces[session]
	p.nacks++
	g.paces[session] = p
}

// acked ends the throttling of a session. Frequent: looks for one only if any has nacked.
func (g *Group) acked(session SessionID) {
	if len(g.paces) > 0 {
		delete(g.paces, session)
	}
}

// nextPace is when a throttled session may be given something again, of those that wait for it.
func (g *Group) nextPace() (next int64, ok bool) {
	for _, p := range g.paces {
		if p.until > g.now && (!ok || p.until < next) {
			next, ok = p.until, true
		}
	}
	return next, ok
}

// Throttled reports whether a session gets nothing for now, since it fails all it gets.
func (g *Group) Throttled(session SessionID) bool { return g.most(session, 1) == 0 }

// Leave forgets a session that is over. The messages that it holds stay locked, and may still be settled.
func (g *Group) Leave(session SessionID) {
	delete(g.present, session)
	delete(g.paces, session)
	if g.gaveTo == session {
		g.gaveTo = 0
	}
	if g.isolation != nil {
		delete(g.isolation.given, session)
	}
}
