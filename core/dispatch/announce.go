package dispatch

import (
	"cmp"
	"slices"

	"github.com/columbamq/columba/core"
)

// The first step of a transfer: checkpoints say which messages leave. They have room for so many only, so the others
// wait for a later one.

// leave has a message wait for the checkpoint that says that it leaves. due (ns) is when it may be handed out again; of
// a dead letter it is not used.
func (s *Share) leave(seq core.Seq, m *message, to Destination, due int64) {
	if m.phase.leaves() { // it was on its way elsewhere
		s.withdraw(seq, m)
	}
	x, r, now := s.transferOf(seq), &routes[to], s.group.now
	if x.to != to {
		x.mayBeThere, x.appended, x.certain = false, 0, 0
	}
	x.to, x.reason, x.token, x.failed, x.due = to, reasonOf(to, m), 0, now, 0
	if r.returns {
		x.due = max(due, now)
	}
	s.change()
	s.step(seq, m, x, leaving)
	s.queueUp(seq, x)
	m.due = x.due
	stays := s.stays(x)
	if until := x.failed + int64(r.patience); stays && (m.due == 0 || until < m.due) {
		m.due = until
	}
	if stays || x.due > 0 && (m.due > now || x.mayReturn()) { // else it only waits for the checkpoint
		s.group.wakeAt(s, seq, m.due)
	}
}

// reasonOf is why a message leaves that has its last failure.
func reasonOf(to Destination, m *message) Reason {
	switch {
	case m.failure == Expired && m.attempts == 0:
		return Swept
	case m.failure == Expired:
		return ExpiredRetry
	case to == RetryQueue || m.failure == Rejected:
		return Failed
	}
	return Exhausted
}

// stays reports whether a message waits until it is known whether its attempt counts, before any checkpoint says that
// it leaves. A message that failed before the last success waits for nothing: no breaker counts it any more.
func (s *Share) stays(x *transfer) bool {
	until := x.failed + int64(routes[x.to].patience)
	if s.group.now >= until || x.failed < s.group.succeededAt {
		return false
	}
	if x.to == DeadLetterQueue {
		return x.reason == Exhausted && s.group.breaker.gathers() > 0
	}
	return s.group.breaker.gathers() > 1 && x.due > until
}

// wakeWhenStayed has a message wait for the end of its stay. It has no deadline yet if it did not stay when it began to
// leave.
func (s *Share) wakeWhenStayed(seq core.Seq, m *message, x *transfer) {
	if until := x.failed + int64(routes[x.to].patience); m.due == 0 || m.due > until {
		m.due = until
		s.group.wakeAt(s, seq, until)
	}
}

// room is how many more messages the next checkpoint may announce for a destination.
func (s *Share) room(to Destination) int { return max(0, routes[to].atOnce-s.transfers[to].underWay) }

// Leaving is how many messages the next checkpoint would announce as on their way to the retry queue or the dead letter
// queue. While it is not 0, save a checkpoint soon: a message is appended there only after a saved checkpoint has
// announced it.
func (s *Share) Leaving() (n int) {
	for to := range s.destinations() {
		if next := min(s.transfers[to].leaving, s.room(to)); next > 0 && s.goes(to, 1) {
			n += next
		}
	}
	return n
}

// LeavingMany reports whether a checkpoint taken now would announce so many messages that it is worth its cost at once:
// masses do not wait for checkpoints, and those are no more than their number asks for.
func (s *Share) LeavingMany() bool {
	for to := range s.destinations() {
		many := routes[to].atOnce / 2
		if !s.cut && min(s.transfers[to].leaving, s.room(to)) >= many && s.goes(to, many) {
			return true
		}
	}
	return false
}

// goes reports whether none of about the first n messages that are leaving stays until it is known whether its attempt
// counts. They began to leave in the order in which they failed, so the last of them tells.
func (s *Share) goes(to Destination, n int) bool {
	if s.group.breaker.gathers() == 0 {
		return true
	}
	all := s.transfers[to].waiting.all()
	for _, b := range all[min(n-1, len(all)):] {
		if m, x := s.inTransfer(b, to, leaving); m != nil {
			return !s.stays(x)
		}
	}
	return true
}

// queueUp has a message wait for a checkpoint. Entries that do not wait any more are swept out when they are the
// majority.
func (s *Share) queueUp(seq core.Seq, x *transfer) {
	r := &s.transfers[x.to]
	if r.waiting.len()+r.announced.len() >= 64+2*(r.leaving+r.underWay) {
		keep := func(in phase) func(*begun) bool {
			return func(b *begun) bool {
				m, _ := s.inTransfer(*b, x.to, in)
				return m != nil
			}
		}
		r.waiting.filter(keep(leaving))
		r.announced.filter(keep(announced))
	}
	r.begun++
	x.number = r.begun
	r.waiting.push(begun{seq, x.number})
}

// inTransfer is a message that leaves for a destination and is in the phase, nil if it is not any more.
func (s *Share) inTransfer(b begun, to Destination, in phase) (*message, *transfer) {
	m := s.table.get(b.seq)
	if m == nil || m.phase != in {
		return nil, nil
	}
	if x := s.table.note(b.seq).transfer; x.to == to && x.number == b.number {
		return m, x
	}
	return nil, nil
}

// announce chooses the messages that the next checkpoint says leave, besides those of before.
func (s *Share) announce() {
	for to := range s.destinations() {
		r := &s.transfers[to]
		for room := s.room(to); r.waiting.len() > 0; r.waiting.pop() {
			b := *r.waiting.front()
			m, x := s.inTransfer(b, to, leaving)
			if m == nil {
				continue
			}
			if room == 0 {
				break
			}
			if s.stays(x) {
				s.wakeWhenStayed(b.seq, m, x)
				break
			}
			room--
			x.token = s.token
			if x.due > 0 && !x.mayBeThere {
				x.deliverAt = core.UnixMillis(s.group.instant(x.due))
			}
			s.step(b.seq, m, x, announced)
			r.announced.push(b)
		}
	}
}

// retract takes back what the checkpoint had no room for: written are its entries. There is no hurry with the next one,
// which may have no room either.
func (s *Share) retract(written []entry) {
	s.cut = true
	for to := range s.destinations() {
		r := &s.transfers[to]
		var back []begun
		r.announced.filter(func(b *begun) bool {
			m, x := s.inTransfer(*b, to, announced)
			if m == nil || holds(written, b.seq) {
				return m != nil
			}
			x.token = 0
			s.step(b.seq, m, x, leaving)
			back = append(back, *b)
			return false
		})
		if len(back) > 0 {
			r.waiting = queue[begun]{items: append(back, r.waiting.all()...)}
		}
	}
}

// holds reports whether an entry tells of a message.
func holds(entries []entry, seq core.Seq) bool {
	at, found := slices.BinarySearchFunc(entries, seq, func(e entry, seq core.Seq) int { return cmp.Compare(e.first, seq) })
	return found || at > 0 && entries[at-1].first+core.Seq(entries[at-1].count) > seq
}

// savedTransfers has messages wait for TakeTransfers whose leaving is durable.
func (s *Share) savedTransfers(token uint64) {
	for to := range s.destinations() {
		for r := &s.transfers[to]; r.announced.len() > 0; r.announced.pop() {
			b := *r.announced.front()
			m, x := s.inTransfer(b, to, announced)
			if m != nil && x.token > token {
				break
			}
			if m != nil {
				s.enqueue(b.seq, m, x)
			}
		}
	}
}

// entry is how a checkpoint tells of a message that leaves. One for the retry queue that is not announced may be handed
// out from here by a later owner; a dead letter may not. After a final checkpoint nothing is appended any more, so it
// tells of messages that were not appended that they are here only: the next owner need not look for them.
func (x *transfer) entry(m *message, final bool, e *entry) {
	here := final && m.phase != appending && !x.mayBeThere
	e.leaves = m.phase != leaving
	if routes[x.to].returns && (!e.leaves || here && e.attempts > 0) {
		e.kind, e.due, e.leaves = kindWaiting, milli(x.due), false
		return
	}
	e.kind, e.to, e.reason, e.due = kindTransferring, x.to, x.reason, x.deliverAt
	e.held = here && e.dies()
}
