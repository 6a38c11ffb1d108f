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
		x.mayBeThere, x.appended = false, 0
	}
	x.to, x.reason, x.token, x.failed, x.due = to, reasonOf(to, m), 0, now, 0
	if r.returns {
		x.due = max(due, now)
	}
	s.change()
	s.step(m, x, leaving)
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
	case m.failure == Lapsed && m.attempts == 0:
		return Swept
	case m.failure == Lapsed:
		return Expired
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

// room is how many more messages the next checkpoint may announce for a destination.
func (s *Share) room(to Destination) int { return max(0, routes[to].atOnce-s.transfers[to].underWay) }

// Leaving is how many messages the next checkpoint would announce. While it is not 0, save a checkpoint soon.
func (s *Share) Leaving() (n int) {
	if s.transfers == nil {
		return 0
	}
	for to := range Destination(Destinations) {
		if next := min(s.transfers[to].leaving, s.room(to)); next > 0 && s.goes(to, 1) {
			n += next
		}
	}
	return n
}

// LeavingMany reports whether a checkpoint taken now would announce so many messages that it is worth its cost at once:
// masses do not wait for checkpoints, and those are no more than their number asks for.
func (s *Share) LeavingMany() bool {
	if s.transfers == nil || s.cut {
		return false
	}
	for to := range Destination(Destinations) {
		many := routes[to].atOnce / 2
		if min(s.transfers[to].leaving, s.room(to)) >= many && s.goes(to, many) {
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
	all := s.transfers[to].fromNext()
	for _, b := range all[min(n-1, len(all)):] {
		if m, x := s.inTransfer(b, to); m != nil && m.phase == leaving {
			return !s.stays(x)
		}
	}
	return true
}

// queueUp has a message wait for a checkpoint. Entries that do not wait any more are swept out when they are the
// majority.
func (s *Share) queueUp(seq core.Seq, x *transfer) {
	r := &s.transfers[x.to]
	if r.waiting.len() >= 64+2*(r.leaving+r.underWay) {
		r.waiting.filter(func(b *begun) bool {
			m, _ := s.inTransfer(*b, x.to)
			return m != nil
		})
	}
	r.begun++
	x.number = r.begun
	r.waiting.push(begun{seq, x.number})
}

// inTransfer is a message that is leaving or announced for a destination, nil if it is not any more.
func (s *Share) inTransfer(b begun, to Destination) (*message, *transfer) {
	m := s.table.get(b.seq)
	if m == nil || m.phase != leaving && m.phase != announced {
		return nil, nil
	}
	if x := s.notes[b.seq].transfer; x.to == to && x.number == b.number {
		return m, x
	}
	return nil, nil
}

// announce chooses the messages that the next checkpoint says leave, besides those of before.
func (s *Share) announce() {
	if s.transfers == nil {
		return
	}
	for to := range Destination(Destinations) {
		s.announceTo(to, s.room(to))
	}
}

func (s *Share) announceTo(to Destination, room int) {
	r := &s.transfers[to]
	for _, b := range r.fromNext() {
		m, x := s.inTransfer(b, to)
		if m != nil && m.phase == leaving {
			if room == 0 || s.stays(x) {
				return
			}
			x.token = s.token
			s.step(m, x, announced)
			room--
		}
		r.next = b.number + 1
	}
}

// fromNext are the messages that wait for a checkpoint, from the first one on that may be in phase leaving.
func (r *transfers) fromNext() []begun {
	all := r.waiting.all()
	at, _ := slices.BinarySearchFunc(all, r.next, func(b begun, next uint64) int { return cmp.Compare(b.number, next) })
	return all[at:]
}

// retract takes back what the checkpoint had no room for: written are its entries. There is no hurry with the next one,
// which may have no room either.
func (s *Share) retract(written []entry) {
	s.cut = true
	if s.transfers == nil {
		return
	}
	for to := range Destination(Destinations) {
		for _, b := range s.transfers[to].waiting.all() {
			m, x := s.inTransfer(b, to)
			if m == nil || m.phase != announced {
				continue
			}
			if !holds(written, b.seq) {
				x.token = 0
				s.step(m, x, leaving)
				s.transfers[to].next = 0
			}
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
	if s.transfers == nil {
		return
	}
	for to := range Destination(Destinations) {
		waiting := &s.transfers[to].waiting
		for waiting.len() > 0 {
			b := *waiting.front()
			if m, x := s.inTransfer(b, to); m != nil {
				if m.phase == leaving || x.token > token {
					break
				}
				s.enqueue(b.seq, m, x)
			}
			waiting.pop()
		}
	}
}

// transferEntry is how a checkpoint tells of a message that leaves. One for the retry queue that is not announced may
// be handed out from here by a later owner; a dead letter may not.
func (s *Share) transferEntry(seq core.Seq, m *message, e *entry) {
	x := s.notes[seq].transfer
	e.leaves = m.phase != leaving
	if x.due > 0 {
		e.due = milli(x.due)
	}
	if !e.leaves && routes[x.to].returns {
		e.kind = kindWaiting
		return
	}
	e.kind, e.to, e.reason = kindTransferring, x.to, x.reason
}
