package dispatch

import "time"

// A group lists the shares that changed, so that its owner looks at those and not at all of them. What a share answers
// to Unsaved, Leaving, LeavingMany, Changed, WantsMore, ReadCredit, ReadFrom, Unread, Lacks, Begun, Held and Noted
// changes only when the share is listed. Leaving and LeavingMany may fall without that, as nothing follows from it.

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

// TakeChanged appends the shares that changed since it was called last, each once, in the order in which they did.
func (g *Group) TakeChanged(out []*Share) []*Share {
	gathers := g.breaker.gathers()
	if len(g.staying) > 0 && (gathers < g.gathered || g.now >= g.stayingAgain) {
		for _, s := range g.staying {
			s.staying = false
			s.touch()
		}
		clear(g.staying)
		g.staying = g.staying[:0]
	}
	g.gathered = gathers
	for _, s := range g.listed {
		if s.gone {
			continue
		}
		s.listed = false
		if gathers > 0 && s.transfers != nil && !s.staying {
			g.stay(s)
		}
		out = append(out, s)
	}
	clear(g.listed)
	g.listed = g.listed[:0]
	return out
}

// stay has a share listed again when messages that are leaving may do so after all: see stays.
func (g *Group) stay(s *Share) {
	for to := range s.transfers {
		if s.transfers[to].leaving == 0 {
			continue
		}
		if len(g.staying) == 0 {
			g.stayingAgain = g.now + int64(lookAtStaying)
		}
		s.staying = true
		g.staying = append(g.staying, s)
		return
	}
}
