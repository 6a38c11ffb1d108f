package dispatch

import (
	"math"
	"time"

	"github.com/columbamq/columba/core"
)

// Isolation keeps good messages from being exhausted together with one that kills its worker. When a lock times out,
// the message may have killed its worker, or was only held by the same session as one that did; so the last attempt of
// such a message goes to a session that holds nothing else, which gets nothing more until the message is settled or its
// lock has timed out. The message waits for such a session for isolationPatience at most, and only while more than one
// session is connected: no session is emptied for it. One such message at a time is counted, and ready for the next
// idle session: should the owner die, that one is taken for handed out, and no other. It is a retry, and owes first
// deliveries their part, see turns. Nothing is saved: checkpoints keep attempts and the last failure of messages.
//
// Its scope is one session. The methods of a nil isolation are those of one that knows of no message.
//
//	inFlight ── lock timeout, one attempt left ─▶ isolated ── its turn ─▶ unclaimed, unsaved ── Saved ─▶ ready ── Take, alone
//	                 nobody was idle for long, or there is one session only ─▶ unclaimed, like any retry
const isolationPatience = 30 * time.Second

// isolatedMessage is a message that waits to be handed out alone.
type isolatedMessage struct {
	messageRef
	due int64 // ns: when it is handed out like any other
}

// isolation is what a group keeps of isolated messages.
//
//	counted is unclaimed, unsaved or ready, and in no share's retries
type isolation struct {
	waiting queue[isolatedMessage]   // phase isolated, with bytes; others are skipped
	counted isolatedMessage          // the next one; no share: none
	given   map[SessionID]messageRef // the last one that each session was handed
}

// admit is 0 for a session that holds a message which was handed out alone. A message that a unary pull gets alone
// keeps nothing from other pulls.
func (a *isolation) admit(sc scope, _ int64) int {
	if a == nil || sc.group || sc.session == 0 {
		return math.MaxInt
	}
	ref, has := a.given[sc.session]
	if !has {
		return math.MaxInt
	}
	if m := ref.share.table.get(ref.seq); m != nil && m.phase == inFlight && m.session == sc.session {
		return 0
	}
	delete(a.given, sc.session)
	return math.MaxInt
}

// nextDeadline is when a message has waited long enough.
func (a *isolation) nextDeadline(int64) int64 {
	next := never
	if a == nil {
		return next
	}
	if a.tidy(); a.waiting.len() > 0 {
		next = a.waiting.front().due
	}
	if a.counted.share != nil {
		next = min(next, a.counted.due)
	}
	return next
}

// Connected sets how many sessions are connected that take messages. While it is one, nothing is isolated: that session
// would have to do without all other messages. Before the first call, and while nobody is connected, the number is not
// known: isolated messages then wait for an idle session.
func (g *Group) Connected(sessions int) {
	n := int8(min(sessions, 2))
	if g.connected == n {
		return
	}
	g.connected = n
	g.tickIsolation()
}

// needsIsolation reports whether the next attempt of a message that failed is to be made alone.
func (s *Share) needsIsolation(seq core.Seq, m *message) bool {
	return m.failure == LockTimedOut && s.isLast(seq, m) && !s.group.atMostOnce()
}

// setApart has a message wait to be handed out alone.
func (s *Share) setApart(seq core.Seq, m *message) {
	s.move(seq, m, isolated)
	if m.batch != nil {
		s.waitAlone(seq)
	}
}

func (s *Share) waitAlone(seq core.Seq) {
	g := s.group
	if g.isolation == nil {
		g.isolation = &isolation{given: map[SessionID]messageRef{}}
	}
	g.isolation.waiting.push(isolatedMessage{messageRef{s, seq}, g.now + int64(isolationPatience)})
}

// isNext reports whether a message is the counted one.
func (a *isolation) isNext(s *Share, seq core.Seq) bool {
	return a != nil && a.counted.messageRef == messageRef{s, seq}
}

// counts is how many messages of a share are counted and go to an idle session only.
func (a *isolation) counts(s *Share) int {
	if a != nil && a.counted.share == s && a.counted.stands(unclaimed, unsaved, ready) {
		return 1
	}
	return 0
}

// isolatedMessages are the messages that wait, and some that do not any more.
func (g *Group) isolatedMessages() []isolatedMessage {
	if g.isolation == nil {
		return nil
	}
	return g.isolation.waiting.all()
}

// tidy forgets what was settled, and reports whether any message waits.
func (a *isolation) tidy() (waits bool) {
	if a.counted.share != nil && !a.counted.stands(unclaimed, unsaved, ready) {
		a.counted = isolatedMessage{}
	}
	for a.waiting.len() > 0 && !a.waiting.front().stands(isolated) {
		a.waiting.pop()
	}
	return a.waiting.len() > 0 || a.counted.share != nil
}

// tidy forgets also all that is not needed while nothing waits.
func (g *Group) tidy() (waits bool) {
	a := g.isolation
	if a == nil || a.tidy() {
		return a != nil
	}
	for session, ref := range a.given {
		if !ref.stands(inFlight) {
			delete(a.given, session)
		}
	}
	if len(a.given) == 0 {
		g.isolation = nil
	}
	return false
}

// waitsAlone reports whether a message still waits for an idle session.
func (g *Group) waitsAlone(x *isolatedMessage) bool { return g.connected != 1 && g.now < x.due }

// tickIsolation ends the wait of those that waited too long, and chooses the next one.
func (g *Group) tickIsolation() {
	if !g.tidy() {
		return
	}
	a := g.isolation
	for a.waiting.len() > 0 && !g.waitsAlone(a.waiting.front()) {
		if x := a.waiting.pop(); x.stands(isolated) {
			x.share.await(x.seq, x.share.table.get(x.seq))
		}
	}
	if x := a.counted; x.share != nil && !g.waitsAlone(&x) {
		a.counted = isolatedMessage{}
		if m := x.share.table.get(x.seq); m.phase == ready && m.batch != nil {
			x.share.retries.push(x.seq)
			x.share.wake()
		}
	}
	g.chooseNext()
}

// chooseNext has the next attempt of one isolated message counted.
func (g *Group) chooseNext() {
	if !g.tidy() || g.isolation.counted.share != nil || bool(g.paused) {
		return
	}
	for a := g.isolation; a.waiting.len() > 0; {
		if x := a.waiting.pop(); x.stands(isolated) {
			a.counted = x
			x.share.await(x.seq, x.share.table.get(x.seq))
			return
		}
	}
}

// isolatedReady reports whether a session that holds nothing would be handed an isolated message.
func (g *Group) isolatedReady() bool {
	if !g.tidy() || g.isolation.counted.share == nil {
		return false
	}
	x := g.isolation.counted
	m := x.share.table.get(x.seq)
	return m.phase == ready && m.batch != nil
}

// takeAlone hands out an isolated message if the session holds nothing. alone says that the session is handed out
// nothing else.
func (g *Group) takeAlone(h *handout) (alone bool) {
	if h.messages <= 0 || !g.isolatedReady() || h.session.known() != 0 && g.sessions.held(h.session) > 0 {
		return false
	}
	if g.breaker.isOpen() && g.breaker.left > 1 && (g.turns.ready() || g.mergedTurns.ready()) { // one probe of a round at most
		return false
	}
	a := g.isolation
	x := a.counted
	g.holdFirsts()
	if !x.share.turns().admitsIsolated() || x.share.merged && g.owed > 0 && g.turns.ready() {
		return false // it is a retry, and may be a merged one
	}
	m := x.share.table.get(x.seq)
	i := x.share.place(m.batch, x.seq)
	if x.share.expired(m.batch, i) {
		a.counted = isolatedMessage{}
		x.share.expire(x.seq, m)
		g.chooseNext()
		return false
	}
	c := chosen{batch: m.batch, first: x.seq, count: 1, size: m.batch.sizeAt(i), retry: true}
	if !h.fits(c.size) { // its window is not free: it still has messages whose locks timed out
		h.stopped = false
		return false
	}
	a.counted = isolatedMessage{}
	x.share.handOut(h, c)
	a.given[h.session.known()] = x.messageRef
	x.share.turns().handedIsolated()
	g.countMerged(x.share, 1)
	g.chooseNext()
	return true
}

// leaveAlone forgets the isolated messages of a share.
func (g *Group) leaveAlone(s *Share) {
	a := g.isolation
	if a == nil {
		return
	}
	a.waiting.filter(func(x *isolatedMessage) bool { return x.share != s })
	if a.counted.share == s {
		a.counted = isolatedMessage{}
	}
}

// uncountAlone has the counted message wait again, if it is of the share: nobody takes messages.
func (s *Share) uncountAlone() {
	a := s.group.isolation
	if a == nil || a.counted.share != s {
		return
	}
	seq := a.counted.seq
	if m := s.table.get(seq); m != nil && (m.phase == unsaved || m.phase == ready) {
		if s.needsIsolation(seq, m) { // else a breaker that opened since has left it more attempts
			s.setApart(seq, m)
		}
		a.counted = isolatedMessage{}
	}
}
