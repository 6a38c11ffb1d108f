package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
)

// lock is the common deadline of a run of messages handed out together. A message is under it as long as it is in
// flight and its own due is the lock's; what was settled or extended meanwhile is skipped when the deadline comes.
type lock struct {
	due   int64
	share *Share
	base  core.Seq
	count uint32
	// attempt tells a delivery from one before with the same deadline.
	attempt uint16
}

// timer is the deadline of one message, or with seq 0 of a share (see look); it is void once the due is another.
type timer struct {
	due   int64
	seq   core.Seq
	share *Share
}

// lockRun sets the deadline of count messages in flight from base, whose due is due.
func (g *Group) lockRun(s *Share, base core.Seq, count uint32, attempt uint16, due int64) {
	if g.locks.len() > 0 && g.locks.back().due > due { // the lock timeout was lowered, or restored locks
		for i := range count {
			g.wakeAt(s, base+core.Seq(i), due)
		}
		return
	}
	if g.locks.len() >= int(g.locksMost) {
		g.locks.filter((*lock).trim)
		g.locksMost = int32(max(64, 2*g.locks.len()))
	}
	g.locks.push(lock{due, s, base, count, attempt})
}

// trim skips the leading messages that are not under the lock any more and reports whether any is left.
func (l *lock) trim() bool {
	for l.count > 0 {
		n := l.share.table.skip(l.base, l.count)
		l.base, l.count = l.base+core.Seq(n), l.count-n
		if l.count == 0 {
			break
		}
		if m := l.share.table.get(l.base); m.phase == inFlight && m.due == l.due && m.attempts == l.attempt {
			return true
		}
		l.base, l.count = l.base+1, l.count-1
	}
	return false
}

// live reports whether the timer's message still waits for it.
func (t *timer) live() bool {
	if t.seq == 0 {
		return t.share.alarm == t.due
	}
	m := t.share.table.get(t.seq)
	return m != nil && m.due == t.due && (m.phase == inFlight || m.phase == delayed || m.phase == leaving || m.phase == announced || m.phase == held)
}

// wakeAt sets a deadline of its own for a message whose due is due, or with seq 0 for the share.
func (g *Group) wakeAt(s *Share, seq core.Seq, due int64) {
	if len(g.timers) >= int(g.timersMost) {
		g.timers.filter((*timer).live)
		g.timersMost = int32(max(64, 2*len(g.timers)))
	}
	g.timers.push(timer{due, seq, s})
}

// timers are a heap: the earliest one is the first.
type timers []timer

func (h *timers) push(x timer) {
	*h = append(*h, x)
	for all, i := *h, len(*h)-1; i > 0; {
		up := (i - 1) / 2
		if all[up].due <= all[i].due {
			break
		}
		all[up], all[i] = all[i], all[up]
		i = up
	}
}

func (h *timers) pop() timer {
	all := *h
	first, n := all[0], len(all)-1
	all[0], all[n] = all[n], timer{}
	*h = all[:n]
	h.sink(0)
	return first
}

// filter keeps those for which keep is true.
func (h *timers) filter(keep func(*timer) bool) {
	all, n := *h, 0
	for i := range all {
		if keep(&all[i]) {
			all[n] = all[i]
			n++
		}
	}
	clear(all[n:])
	*h = all[:n]
	for i := n/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

// sink restores the order below i.
func (h timers) sink(i int) {
	for {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(h) && h[c].due < h[least].due {
				least = c
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// NextDeadline is when Tick has something to do next; ok is false while nothing waits.
func (g *Group) NextDeadline() (at time.Time, ok bool) {
	for g.locks.len() > 0 && !g.locks.front().trim() {
		g.locks.pop()
	}
	for len(g.timers) > 0 && !g.timers[0].live() {
		g.timers.pop()
	}
	if g.inFlight == 0 {
		g.locks.trim()
	}
	due := min(g.nextPolicy(), g.breaker.toldUntil(g.now)) // then Opening may answer another one
	if g.locks.len() > 0 {
		due = min(due, g.locks.front().due)
	}
	if len(g.timers) > 0 {
		due = min(due, g.timers[0].due)
	}
	if due == never {
		return time.Time{}, false
	}
	return g.instant(due), true
}

// Tick applies every deadline up to now: locks expire, delays end, messages come to the age of the group's delay
// or are too old, failed transfers are offered again, an open breaker begins a round of probes.
func (g *Group) Tick(now time.Time) {
	t := g.at(now)
	g.settleGiven()
	if led := g.breaker.follow(t); led != nil { // before deadlines of messages that it takes back
		g.opened(led)
	}
	for g.locks.len() > 0 && g.locks.front().due <= t {
		for l := g.locks.pop(); l.trim(); {
			l.share.due(l.base, l.share.table.get(l.base))
		}
	}
	for len(g.timers) > 0 && g.timers[0].due <= t {
		w := g.timers.pop()
		switch {
		case !w.live():
		case w.seq == 0:
			w.share.wake()
		default:
			w.share.due(w.seq, w.share.table.get(w.seq))
		}
	}
	g.tickDrops()
	if g.breaker.tick(t) {
		g.keepBreaker()
		g.wakeChains()
	}
	g.endFollowing()
	g.tickIsolation()
}

// handedOut is when a message in flight was handed out, ns.
func (s *Share) handedOut(seq core.Seq, m *message) int64 {
	if at := s.table.note(seq).extended; at != 0 {
		return at
	}
	return m.due - int64(s.group.spec.LockTimeout)
}

// noteHandedOut notes when messages in flight were handed out, before the lock timeout of the group changes.
func (g *Group) noteHandedOut() {
	for _, s := range g.shares {
		s.table.each(func(seq core.Seq, m *message) {
			if n := s.table.note(seq); m.phase == inFlight && n.extended == 0 {
				n.extended = s.handedOut(seq, m)
				s.table.setNote(seq, n)
			}
		})
	}
}

// extend notes when a message was handed out, before its lock says so no more. A consumer has it.
func (s *Share) extend(seq core.Seq, m *message) {
	n := s.table.note(seq)
	n.extended, n.uncounted.now = s.handedOut(seq, m), false
	s.table.setNote(seq, n)
}

// endLock forgets what belongs to the lock of a message that is not in flight any more.
func (s *Share) endLock(seq core.Seq) {
	if s.table.noted == 0 {
		return
	}
	if n := s.table.note(seq); n.extended != 0 || n.uncounted.now {
		n.extended, n.uncounted.now = 0, false
		s.table.setNote(seq, n)
	}
}
