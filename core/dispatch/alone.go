package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
)

// A message whose lock ran out may have killed its worker, or may have lain beside one that did: from here both look the same. So that only the
// guilty is exhausted by it, the last attempt of such a message is made alone: it is given to a session that holds nothing else, which is given nothing
// more until the message is settled, or its lock has run out.
//
//	inFlight ── lock expired, one attempt left ─▶ lone ── its turn ─▶ unsaved ── Checkpoint, Saved ─▶ ready ── Take, alone ─▶ inFlight
//	                                               └── nobody was idle for long ─▶ unsaved, like any retry
//
// One lone message at a time is counted, and ready for the next idle session: should the owner die, that one is taken for handed out, and no
// other. While none of the sessions is idle, one drains: it is given nothing until it holds nothing. Neither lasts longer than patience, so a group that has
// no session to spare for such a message goes on as if it were any other.
const (
	leastPatience = 30 * time.Second // or the lock timeout, if that is longer, …
	mostPatience  = 5 * time.Minute  // … but this at most
)

// loner is a message that waits to be handed out alone.
type loner struct {
	deadRef
	since int64 // ns
}

// alone is what a group keeps of lone messages.
//
//	counted is unsaved or ready, and in no share's retries
//	holds, unless nil: messages in flight by session, of those that hold any
type alone struct {
	waiting  queue[loner] // phase lone, with bytes; others are skipped
	counted  loner        // the next one; no share: none
	given    map[SessionID]deadRef
	draining SessionID // is given nothing until it holds nothing; 0: none
	holds    map[SessionID]int
	began    int64 // ns: patience is counted from here at the earliest
}

// isLone reports whether the next attempt of a message that failed is to be made alone.
func (s *Share) isLone(seq core.Seq, m *message) bool {
	return m.failure == LockExpired && s.isLast(seq, m) && !s.group.once()
}

// setApart has a message wait to be handed out alone.
func (s *Share) setApart(seq core.Seq, m *message) {
	s.move(m, lone)
	if m.batch != nil {
		s.waitAlone(seq)
	}
}

func (s *Share) waitAlone(seq core.Seq) {
	g := s.group
	if g.alone == nil {
		g.alone = &alone{given: map[SessionID]deadRef{}}
	}
	g.alone.waiting.push(loner{deadRef{s, seq}, g.now})
}

// isNext reports whether a message is the counted one.
func (a *alone) isNext(s *Share, seq core.Seq) bool {
	return a != nil && a.counted.deadRef == deadRef{s, seq}
}

// loners are the messages that wait, and some that do not any more.
func (g *Group) loners() []loner {
	if g.alone == nil {
		return nil
	}
	return g.alone.waiting.all()
}

// tidy forgets what was settled, and all that is not needed while nothing waits.
func (g *Group) tidy() (waits bool) {
	a := g.alone
	if a == nil {
		return false
	}
	in := func(ref deadRef, phases ...phase) bool {
		m := ref.share.table.get(ref.seq)
		for _, p := range phases {
			if m != nil && m.phase == p {
				return true
			}
		}
		return false
	}
	if a.counted.share != nil && !in(a.counted.deadRef, unsaved, ready) {
		a.counted = loner{}
	}
	for a.waiting.len() > 0 && !in(a.waiting.front().deadRef, lone) {
		a.waiting.pop()
	}
	if a.waiting.len() > 0 || a.counted.share != nil {
		return true
	}
	for session, ref := range a.given {
		if !in(ref, inFlight) {
			delete(a.given, session)
		}
	}
	a.draining, a.holds = 0, nil
	if len(a.given) == 0 {
		g.alone = nil
	}
	return false
}

// tickAlone ends the wait of those that waited too long, and chooses the next one.
func (g *Group) tickAlone() {
	if !g.tidy() {
		return
	}
	a := g.alone
	if g.impatient() {
		for a.waiting.len() > 0 && g.patience(a.waiting.front()) <= g.now {
			x := a.waiting.pop()
			if m := x.share.table.get(x.seq); m != nil && m.phase == lone {
				x.share.await(x.seq, m)
			}
		}
		if x := a.counted; x.share != nil && g.patience(&x) <= g.now {
			a.counted = loner{}
			if m := x.share.table.get(x.seq); m.phase == ready && m.batch != nil {
				x.share.retries.push(x.seq)
				x.share.wake()
			}
		}
	} else {
		a.began = g.now
	}
	g.chooseNext()
}

// patience is when a message has waited long enough.
func (g *Group) patience(x *loner) int64 {
	return max(x.since, g.alone.began) + int64(min(max(g.spec.LockTimeout, leastPatience), mostPatience))
}

// impatient reports whether the time that lone messages wait counts: not while nobody takes messages, nor while they hold up nothing, since only a few
// messages probe, and no attempt counts. A round of which no probe is handed out may be held up by them.
func (g *Group) impatient() bool {
	b := &g.breaker
	return !g.unwanted && (!b.open || b.counting() || b.next == 0)
}

// chooseNext has the next attempt of one lone message counted.
func (g *Group) chooseNext() {
	if !g.tidy() || g.alone.counted.share != nil || g.unwanted {
		return
	}
	a := g.alone
	for a.waiting.len() > 0 {
		x := a.waiting.pop()
		if m := x.share.table.get(x.seq); m != nil && m.phase == lone {
			a.counted = x
			x.share.await(x.seq, m)
			return
		}
	}
}

// nextAlone is when a lone message has waited long enough; ok is false while none waits.
func (g *Group) nextAlone() (at int64, ok bool) {
	if !g.tidy() || !g.impatient() {
		return 0, false
	}
	a := g.alone
	if a.waiting.len() > 0 {
		at, ok = g.patience(a.waiting.front()), true
	}
	if a.counted.share != nil && (!ok || g.patience(&a.counted) < at) {
		at, ok = g.patience(&a.counted), true
	}
	return at, ok
}

// loneReady reports whether a session that holds nothing would be handed a lone message.
func (g *Group) loneReady() bool {
	if !g.tidy() || g.alone.counted.share == nil {
		return false
	}
	x := g.alone.counted
	m := x.share.table.get(x.seq)
	return m.phase == ready && m.batch != nil
}

// takeAlone hands out a lone message, if it is the session's turn. over says that the session is handed out nothing else.
func (g *Group) takeAlone(h *handout) (over bool) {
	if g.alone == nil || h.messages <= 0 {
		return false
	}
	waits := g.tidy()
	if g.alone == nil {
		return false
	}
	a := g.alone
	if ref, has := a.given[h.session]; has && h.session != 0 {
		if m := ref.share.table.get(ref.seq); m != nil && m.phase == inFlight && m.session == h.session {
			return true
		}
		delete(a.given, h.session)
	}
	if !waits {
		return false
	}
	if g.breaker.open && a.draining == h.session && h.session != 0 && g.othersWork() { // some of the probes are to be others
		a.draining = 0
		return false
	}
	if h.session != 0 && g.holding(h.session) > 0 {
		return g.drain(h.session)
	}
	if !g.loneReady() {
		return a.draining == h.session && h.session != 0 // until it is saved that it is counted
	}
	x := a.counted
	m := x.share.table.get(x.seq)
	if x.share.lapsed(m.batch, x.seq) {
		a.counted = loner{}
		x.share.lapse(x.seq, m)
		g.chooseNext()
		return false
	}
	if !h.fits(x.share.size(m.batch, x.seq)) { // its window is not free: it still has messages whose locks ran out
		h.stopped = false
		return g.drain(h.session)
	}
	a.counted = loner{}
	x.share.again(h, x.seq, m)
	a.given[h.session], a.draining = x.deadRef, h.session
	g.chooseNext()
	return true
}

// drain has a session, given nothing from now on, come to hold nothing, unless another one is to. It reports whether this one is.
func (g *Group) drain(session SessionID) bool {
	if session == 0 {
		return false
	}
	if g.alone.draining == 0 && !g.someAlone() {
		g.alone.draining = session
	}
	return g.alone.draining == session
}

// someAlone reports whether some session has a lone message now.
func (g *Group) someAlone() bool {
	for session, ref := range g.alone.given {
		if m := ref.share.table.get(ref.seq); m != nil && m.phase == inFlight && m.session == session {
			return true
		}
		delete(g.alone.given, session)
	}
	return false
}

// othersWork reports whether there is something to hand out but lone messages.
func (g *Group) othersWork() bool {
	for _, s := range g.shares {
		if s.hasWork() {
			return true
		}
	}
	return false
}

// holding is how many messages a session has in flight.
func (g *Group) holding(session SessionID) int {
	a := g.alone
	if a.holds == nil {
		a.holds = map[SessionID]int{}
		for _, s := range g.shares {
			if s.of(inFlight) > 0 {
				s.table.each(func(_ core.Seq, m *message) {
					if m.phase == inFlight {
						a.holds[m.session]++
					}
				})
			}
		}
	}
	return a.holds[session]
}

// holds notes that a session has n more messages in flight.
func (g *Group) holds(session SessionID, n int) {
	if a := g.alone; a != nil && a.holds != nil {
		if a.holds[session] += n; a.holds[session] == 0 {
			delete(a.holds, session)
		}
	}
}

// recount has what sessions hold counted anew, after messages came or went with a share.
func (g *Group) recount() {
	if g.alone != nil {
		g.alone.holds = nil
	}
}

// leaveAlone forgets the lone messages of a share.
func (g *Group) leaveAlone(s *Share) {
	a := g.alone
	if a == nil {
		return
	}
	a.waiting.filter(func(x *loner) bool { return x.share != s })
	if a.counted.share == s {
		a.counted = loner{}
	}
	a.holds = nil
}

// uncountAlone has the counted message wait again, if it is of the share: nobody takes messages.
func (s *Share) uncountAlone() {
	a := s.group.alone
	if a == nil || a.counted.share != s {
		return
	}
	if m := s.table.get(a.counted.seq); m != nil && m.phase == ready {
		s.move(m, lone)
		if m.batch != nil {
			a.waiting.push(a.counted)
		}
		a.counted = loner{}
	}
}
