package dispatch

import (
	"fmt"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// StillFor is for how long the next message of a share may be ready, with free credit, before Watched reports a defect.
const StillFor = 30 * time.Second

// Watch is what a watchdog remembers of a share from one look to the next. The zero Watch has not looked yet.
type Watch struct {
	seq      core.Seq
	attempts uint16
	since    int64 // ns: ready, with credit free, at every look from then on
}

// Watched returns the defect that it has found in the share, "" for none. bytes is the credit that is free for a
// message: 0 while there is none, or while nothing may be delivered. No deadline may be due: see NextDeadline. Watched
// looks only at the message after the ack level. A message that is broken elsewhere gets there when all messages before
// it are settled.
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
		queued = m.batch == nil || s.group.line.has(s, seq)
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
	if s.group.TooLarge() > bytes { // it waits for its turn behind that message
		return false
	}
	if first := m == nil || m.attempts == 0; first && s.group.retries.admit(firstsScope, s.group.now) == 0 { // it waits for retries to end
		return false
	}
	if m == nil {
		b, i := s.supply.find(seq)
		return (!s.claims() || s.mayClaim() && s.group.room().messages > 0) && s.hasRoom() && b.sizeAt(i) <= bytes && s.supply.until(seq) <= s.group.now && s.withheld[seq] == 0
	}
	return m.phase == ready && !s.group.isolation.isNext(s, seq) && m.batch != nil && m.batch.sizeAt(s.place(m.batch, seq)) <= bytes
}
