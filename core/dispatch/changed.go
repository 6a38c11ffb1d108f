package dispatch

import "time"

// A group lists the shares that changed, so that its owner looks at those and not at all of them. The answers of a
// share to Unsaved, Leaving, LeavingMany, Changed, WantsMore, ReadCredit, ReadFrom, Unread, Lacks, Begun, Held and Noted
// change only when the share is listed. Leaving and LeavingMany may fall without that, as nothing follows from it.

// touch lists the share, once until the list is taken.
func (s *Share) touch() {
	if !s.listed && !s.gone {
		s.listed = true
		s.group.listed = append(s.group.listed, s)
	}
}

// change notes that the last checkpoint of the share lacks something.
func (s *Share) change() {
	s.changed = true
	s.touch()
}

// lookAtStaying is between two looks at the shares whose messages stay until it is known whether their attempts count.
const lookAtStaying = 100 * time.Millisecond

// staying are the shares of which messages are leaving that may stay: they are listed again when the breaker has
// gathered fewer failures, or after a while.
type staying struct {
	shares   []*Share
	gathered int   // by the breaker, when TakeChanged was called last
	again    int64 // ns: when they are listed again, at the latest
}

// TakeChanged yields the shares that changed since it was called last, each once, in the order in which they did. Yield
// must not change any.
func (g *Group) TakeChanged(yield func(*Share)) {
	gathers := g.breaker.gathers()
	if x := g.staying; x != nil {
		if len(x.shares) > 0 && (gathers < x.gathered || g.now >= x.again) {
			for _, s := range x.shares {
				s.staying = false
				s.touch()
			}
			clear(x.shares)
			x.shares = x.shares[:0]
		}
		x.gathered = gathers
	}
	for _, s := range g.listed {
		if s.gone {
			continue
		}
		s.listed = false
		if gathers > 0 && !s.staying && s.isLeaving() {
			g.stay(s, gathers)
		}
		yield(s)
	}
	clear(g.listed)
	g.listed = g.listed[:0]
}

// isLeaving reports whether any message is leaving that no checkpoint tells of.
func (s *Share) isLeaving() bool {
	if s.transfers == nil {
		return false
	}
	for to := range s.transfers {
		if s.transfers[to].leaving > 0 {
			return true
		}
	}
	return false
}

func (g *Group) stay(s *Share, gathers int) {
	if g.staying == nil {
		g.staying = &staying{gathered: gathers}
	}
	if x := g.staying; len(x.shares) == 0 {
		x.again = g.now + int64(lookAtStaying)
	}
	s.staying = true
	g.staying.shares = append(g.staying.shares, s)
}
