package dispatch

import (
	"fmt"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// StillFor is how long the message that holds up a share may be ready, with credit free for it, before that counts as a defect.
const StillFor = 30 * time.Second

// Watch is what a watchdog remembers of a share from one look to the next. The zero Watch has not looked yet.
type Watch struct {
	seq      core.Seq
	attempts uint16
	since    int64 // ns: ready, with credit free, at every look from then on
}

// Watched says what was found to be broken; "" is nothing. bytes is the credit that is free for a message, 0 while there is none or nothing
// may be handed out. No deadline may be due: see NextDeadline.
//
// Every message up to the read position is in exactly one of {buffered, in flight with a deadline, delayed, parked, done, dead-lettered}. This looks at
// the one after the frontier only: whatever is broken elsewhere comes to be there.
func (s *Share) Watched(w *Watch, bytes int, now time.Time) (broken string) {
	t := s.group.at(now)
	seq := s.done.Frontier() + 1
	m := s.table.get(seq)
	if s.gone || m == nil && seq >= s.next && !s.supplies(seq) {
		*w = Watch{}
		return ""
	}
	if broken = s.misplaced(seq, m, t); broken != "" {
		*w = Watch{}
		return broken
	}
	if !s.mayGo(seq, m, bytes) {
		*w = Watch{}
		return ""
	}
	attempts := uint16(0)
	if m != nil {
		attempts = m.attempts
	}
	if w.seq != seq || w.attempts != attempts {
		*w = Watch{seq, attempts, t}
		return ""
	}
	if still := time.Duration(t - w.since); still >= StillFor {
		*w = Watch{}
		return fmt.Sprintf("seq %d was ready for %s with credit free", seq, still.Round(time.Second))
	}
	return ""
}

// misplaced says that a message which was read or restored is where nothing will find it.
func (s *Share) misplaced(seq core.Seq, m *message, now int64) string {
	switch {
	case m == nil && (!s.supplies(seq) || s.supply.forgot(seq)):
		return fmt.Sprintf("seq %d was read and is nowhere", seq)
	case m == nil:
		return ""
	case m.batch == nil && seq < s.next:
		return fmt.Sprintf("seq %d was read and its bytes are gone", seq)
	}
	queued := true
	switch m.phase {
	case inFlight, delayed, held:
		if m.due <= now {
			return fmt.Sprintf("seq %d is past its deadline by %s", seq, time.Duration(now-m.due))
		}
	case unclaimed:
		queued = m.batch == nil || slices.Contains(s.group.unclaimed.all(), messageRef{s, seq})
	case unsaved:
		queued = slices.ContainsFunc(s.pending.all(), func(p saving) bool { return p.seq == seq })
	case ready:
		queued = m.batch == nil || slices.Contains(s.retries.all(), seq) || slices.Contains(s.firsts.all(), seq) || s.group.isolation.isNext(s, seq)
	case isolated:
		queued = m.batch == nil || slices.ContainsFunc(s.group.isolatedMessages(), func(x isolatedMessage) bool { return x.messageRef == messageRef{s, seq} })
	case leaving, announced, transferring, appending:
		queued = s.knownTransfer(seq, m)
	}
	if !queued {
		return fmt.Sprintf("seq %d is %s and nothing knows of it", seq, s.placeOf(seq, m))
	}
	return ""
}

// supplies reports whether a message is in the supply.
func (s *Share) supplies(seq core.Seq) bool {
	b, _ := s.supply.find(seq)
	return b != nil
}

// mayGo reports whether a message waits for nothing but credit of so many bytes.
func (s *Share) mayGo(seq core.Seq, m *message, bytes int) bool {
	if s.group.admit(groupScope, 1) == 0 { // it waits for the next probes
		return false
	}
	if first := m == nil || m.attempts == 0; first && s.group.retries.admit(firstsScope, s.group.now) == 0 { // it waits for retries to end
		return false
	}
	if m == nil {
		b, i := s.supply.find(seq)
		return s.canBegin() && b.sizeAt(i) <= bytes && s.supply.until(seq) <= s.group.now && s.withheld[seq] == 0
	}
	return m.phase == ready && !s.group.isolation.isNext(s, seq) && m.batch != nil && s.size(m.batch, seq) <= bytes
}

// Rebuild puts a share together anew from what is known of its messages: what is done stays done, locks, delays and attempts stay, and
// everything is to be read again from ReadFrom on.
func (g *Group) Rebuild(s *Share, now time.Time) {
	g.at(now)
	g.settleGiven()
	if s.gone {
		return
	}
	g.dropHeld(s)
	g.claimed -= int32(s.of(unsaved, ready))
	old := s.table
	s.releaseAll()
	g.leaveAlone(s)
	g.locks.filter(func(l *lock) bool { return l.share != s })
	s.turns().forget(s)
	g.unclaimed.filter(func(d *messageRef) bool { return d.share != s })
	for to := range g.transfers {
		g.transfers[to].filter(func(d *messageRef) bool { return d.share != s })
	}
	g.timers = slices.DeleteFunc(g.timers, func(t timer) bool { return t.share == s })
	for i := len(g.timers)/2 - 1; i >= 0; i-- {
		g.sink(i)
	}
	*s = Share{
		Owner: s.Owner, group: g, extent: s.extent, timers: s.timers, merged: s.merged, returning: s.returning, rate: s.rate, paced: s.paced, done: s.done, table: newTable(), texts: s.texts, noteBytes: s.noteBytes, excused: s.excused, unsure: s.unsure, records: s.records, extended: s.extended, lent: s.lent, held: s.held, heldBytes: s.heldBytes,
		squeezeAt: MaxOutstandingBytes / 2, withheld: s.withheld, withholds: s.withholds, token: s.token, saved: s.saved, changed: true, full: s.full, chained: s.chained, waits: s.waits, listed: s.listed, staying: s.staying,
	}
	if s.records != nil {
		s.transfers = new([Destinations]transfers)
	}
	s.next = s.done.Frontier() + 1
	s.supply = newLogSupply(s)
	if s.timers || s.returning {
		s.supply = newDueSupply(s)
	}
	old.each(func(seq core.Seq, m *message) {
		if !s.done.Done(seq) { // what is in the supply is read again
			s.replace(seq, m)
		}
	})
	s.touch()
	g.inFlight, g.firsts = 0, 0
	for _, o := range g.shares {
		g.inFlight += int32(o.of(inFlight))
		g.firsts += int32(o.of(inFlight)) - o.repeats
	}
	s.wake()
}

// releaseAll gives back the bytes of all batches, of those that are being written elsewhere once they are.
func (s *Share) releaseAll() {
	for i := len(s.held) - 1; i >= 0; i-- { // release moves the last one to i
		b := s.held[i]
		if b.left, b.live = 0, 0; b.lent == 0 {
			s.release(b)
		}
	}
}

// replace takes over what was known of a message.
func (s *Share) replace(seq core.Seq, was *message) {
	m := s.table.put(seq)
	m.attempts, m.failure, m.session, m.due = was.attempts, was.failure, was.session, was.due
	s.missing++
	s.top = max(s.top, seq)
	switch was.phase {
	case inFlight, delayed:
		s.move(m, was.phase)
		s.group.wakeAt(s, seq, m.due)
		if was.phase == delayed {
			s.waitsNacked(seq, m)
		}
	case unclaimed, unsaved, isolated:
		s.retry(seq, m)
	case leaving, announced, transferring, appending, held:
		s.rebuildTransfer(seq, m, was.phase)
	case ready:
		if s.needsIsolation(seq, m) {
			s.setApart(seq, m)
			return
		}
		s.move(m, ready)
	default: // blocked
		s.move(m, was.phase)
	}
}
