package lease

import "time"

// keepMinority does for the lease of a minority's lists what follows from a beat. The answers of the run that made them count alone: no other controller assigns
// their shares, whether that run holds a session lease or not.
//
//	begun by a list ──▶ holds ──OwnerLease without its word──▶ ended, and its shares are given up; the next list begins another lease
func (x *Leases) keepMinority(g *grant, maker Maker, h heard) {
	answer, answered := h.renewed[maker.Controller]
	keeps := answered && answer.Run == maker.Run && answer.Minority
	x.mu.Lock()
	now, l := x.owner.Now(), g.current
	if h.asked.Before(l.base.Add(time.Duration(l.asked.Load()))) { // its list came after the question
		x.mu.Unlock()
		return
	}
	if keeps {
		l.renew(h.asked, now)
	}
	again := l.missed.Swap(!keeps) && keeps
	holds := l.Holds(now)
	x.mu.Unlock()
	switch {
	case !holds && x.owner.Lists(l) > 0:
		x.owner.End(l)
	case again:
		x.owner.Changed(l)
	}
}
