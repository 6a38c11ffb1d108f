package dispatch

import (
	"maps"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// A message of a timer extent that was never handed out can be taken back: it is withheld while that is decided, in whatever order it is offered
// meanwhile, and then settled, or released. See core/cancel.

// Hold is what a share says to a message being withheld.
type Hold string

const (
	Held    Hold = "held"      // it is not handed out until it is released
	Settled Hold = "settled"   // the group has done with it, or never was to get it
	Handed  Hold = "delivered" // it was handed out, and is not settled
)

// Withhold keeps a message of a timer extent from being handed out for the first time.
func (s *Share) Withhold(seq core.Seq, now time.Time) Hold {
	s.group.at(now)
	if s.done.Done(seq) || s.gone || !s.timers {
		return Settled
	}
	if s.table.get(seq) != nil {
		return Handed
	}
	s.supply.(*dueSupply).withhold(seq)
	if s.withheld == nil {
		s.withheld = make(map[core.Seq]uint64)
	}
	s.withholds++
	s.withheld[seq] = s.withholds
	return Held
}

// Withholds counts the calls of Withhold that held something: what was decided was read at that count, or later.
func (s *Share) Withholds() uint64 { return s.withholds }

// Withheld is how many messages are.
func (s *Share) Withheld() int { return len(s.withheld) }

// Follow does what was decided until the share had withheld so many messages: what is called off is settled, but for what the group keeps, and for
// what was handed out after all; the rest is released unless it is still being decided on.
func (s *Share) Follow(called *acklevel.Window, kept, undecided map[core.Seq]bool, until uint64, now time.Time) {
	s.group.at(now)
	for _, seq := range slices.Sorted(maps.Keys(s.withheld)) {
		at := s.withheld[seq]
		switch {
		case s.done.Done(seq):
		case called.Done(seq) && !kept[seq]:
			s.cancel(seq)
		case at > until || undecided[seq]:
			continue
		default:
			s.supply.(*dueSupply).release(seq)
		}
		delete(s.withheld, seq)
	}
	s.wake()
}

// cancel settles a message that was never handed out.
func (s *Share) cancel(seq core.Seq) {
	s.group.counters.Cancelled++
	s.supply.drop(seq)
	s.done.Ack(seq)
	s.change()
}

// Cancel settles the messages that were called off, but for what the group keeps and what was handed out.
func (st *State) Cancel(called *acklevel.Window, kept map[core.Seq]bool) {
	st.done = *st.done.Clone()
	settle := func(first, last core.Seq) {
		for seq := st.done.NextUndone(first); seq != 0 && seq <= last; seq = st.done.NextUndone(seq + 1) {
			if _, begun := st.messages[seq]; !begun && !kept[seq] {
				st.done.Ack(seq)
			}
		}
	}
	settle(1, called.Frontier())
	for r := range called.Ranges() {
		settle(r.First, r.Last)
	}
}
