package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// OwnerLease is for how long the owner of a share goes on handing out after it last asked to and was heard. Nobody else is given the share
// before OwnerGone has passed since the controller heard the owner; the difference is for what was decided just before the end of the lease.
const (
	OwnerLease = 2 * time.Second
	OwnerGone  = OwnerLease + 500*time.Millisecond
)

// State is what the share's last checkpoint would hold if it were given away now, in full.
func (s *Share) State(now time.Time) State {
	s.group.settleGiven()
	st := State{policies: s.group.policies, told: true, done: *s.done.Clone(), messages: map[core.Seq]entry{}}
	for _, e := range s.entries(true, s.group.at(now)) {
		first, count := e.first, e.count
		e.first, e.count, e.firstTry, e.leaves = 0, 0, false, false
		for i := range core.Seq(count) {
			st.messages[first+i] = e
		}
	}
	return st
}

// Absorb settles what another owner of the extent has settled since; how many messages that were not settled here is
// returned. The other's entries of unsettled messages are ignored: this owner may have handed them out since.
func (s *Share) Absorb(o State, now time.Time) (settled uint64) {
	s.group.at(now)
	if s.gone {
		return 0
	}
	settle := func(r acklevel.Range) {
		for seq := s.done.NextUndone(r.First); seq != 0 && seq <= r.Last && seq < s.next; seq = s.done.NextUndone(seq) {
			if !s.ackProven(seq, now) {
				return
			}
			settled++
		}
		if first := max(r.First, s.next); first <= r.Last {
			fresh := s.doneUnread(first, r.Last)
			settled += fresh
		}
	}
	if f := o.done.Frontier(); f > 0 {
		settle(acklevel.Range{First: 1, Last: f})
	}
	for r := range o.done.Ranges() {
		settle(r)
	}
	if settled > 0 {
		s.change()
		s.wake()
	}
	return settled
}

// doneUnread settles messages that were not read yet; some may be restored.
func (s *Share) doneUnread(first, last core.Seq) uint64 {
	restored := uint64(0)
	for seq := first; seq <= min(last, s.top); seq++ {
		if m := s.table.get(seq); m != nil {
			s.settle(seq, m)
			restored++
		} else {
			s.supply.drop(seq)
		}
	}
	fresh := restored + s.done.AckRange(first, uint64(last-first)+1)
	s.group.counters.Acked += fresh
	return fresh
}

// Ack settles a message that was handed out under attempt, or a later one, when the state was taken. It reports false
// when it was not, is settled, or was leaving for the retry queue or the dead letter queue; and when its lock, or its
// delay, ends by until: the owner that follows decides then, and may have sent it on.
func (st *State) Ack(seq core.Seq, attempt uint16, until time.Time) bool {
	e, ok := st.messages[seq]
	if !ok || attempt == 0 || attempt > e.attempts || e.kind == kindTransferring || e.kind == kindBlocked || e.due <= until.UnixMilli() || st.done.Done(seq) {
		return false
	}
	delete(st.messages, seq)
	st.done.Ack(seq)
	return true
}
