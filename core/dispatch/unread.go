package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// Unread is how many messages up to last are neither done nor counted by Depth: nobody has read them here.
func (s *Share) Unread(last core.Seq) uint64 {
	if s.timers { // those were not read in the order of seqs
		have := uint64(s.done.Frontier()) + s.done.Above() + uint64(s.table.n-s.missing)
		return uint64(last) - min(have, uint64(last))
	}
	n := undone(&s.done, s.next, last)
	return n - min(n, uint64(s.missing)) // restored ones are counted, and lie here until they are read
}

// Depth is what a share counts that resumes from the state and has read everything up to last.
func (st *State) Depth(last core.Seq, now time.Time) (d Depth) {
	d.Ready = int(undone(&st.done, 1, last))
	for seq, e := range st.messages {
		if seq > last || st.done.Done(seq) {
			continue
		}
		switch {
		case e.kind == ended:
			d.Dying++
		case e.kind == departing:
			d.Parked++
		case e.due <= now.UnixMilli():
			continue
		case e.kind == locked:
			d.InFlight++
		default:
			d.Delayed++
		}
		d.Ready--
	}
	return d
}

// Unbegun is how many messages of those from first to last are not done and were not handed out.
func (st *State) Unbegun(first, last core.Seq) uint64 {
	n := undone(&st.done, first, last)
	for seq := range st.messages {
		if seq >= first && seq <= last && !st.done.Done(seq) {
			n--
		}
	}
	return n
}

// undone counts the seqs from first to last that are not done.
func undone(done *acklevel.Window, first, last core.Seq) uint64 {
	first = max(first, done.Frontier()+1)
	if first > last {
		return 0
	}
	return uint64(last-first) + 1 - done.Within(first, last)
}
