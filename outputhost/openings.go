package outputhost

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
)

// openings are the breakers of groups that are open here, for other hosts, and those that are open on others, as
// controllers answer when shares are renewed (docs/adr/0076). Safe for concurrent use; its mutex may be taken under a
// group's, or the host's.
type openings struct {
	mu struct {
		sync.Mutex
		own     map[core.GroupID]ownOpening
		opened  uint64                         // of own, so far
		told    map[core.HostID]*toldOpenings  // by controller; those that know of breakers
		known   map[core.BreakerOpening]uint64 // that last on other hosts, as the rules number them: in the order in which they were heard of
		newest  map[core.GroupID]uint64        // of these
		last    uint64                         // number
		changed map[core.GroupID]struct{}      // groups that are to hear of another newest one
	}
	again chan struct{} // capacity 1: groups changed
}

// ownOpening is one of a breaker that is open here.
type ownOpening struct{ number, at uint64 } // at: the place in the order in which they opened

// toldOpenings are what one run of a controller answered last.
type toldOpenings struct {
	run     core.RunID
	counter uint64
	open    []core.BreakerOpening
	at      time.Time
}

// openingsKept is how long the word of a controller stands that answers no more, while another one answers. When none
// does, their word stands: nobody could say that an opening has ended.
const openingsKept = 5 * time.Second

func newOpenings() *openings {
	x := &openings{again: make(chan struct{}, 1)}
	x.mu.own = make(map[core.GroupID]ownOpening)
	x.mu.told, x.mu.changed = make(map[core.HostID]*toldOpenings), make(map[core.GroupID]struct{})
	return x
}

// note that the breaker of a group opened here; number 0: it is not open any more.
func (x *openings) note(group core.GroupID, number uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case number == 0:
		delete(x.mu.own, group)
	case x.mu.own[group].number != number:
		x.mu.opened++
		x.mu.own[group] = ownOpening{number, x.mu.opened}
	}
}

// ask answers what a controller is to be told: the core.MaxOpenings breakers that opened here last, the newest last,
// and what it answered last.
func (x *openings) ask(controller core.HostID) (own []core.BreakerOpening, counter uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := x.mu.told[controller]; t != nil {
		counter = t.counter
	}
	if len(x.mu.own) == 0 {
		return nil, counter
	}
	groups := slices.SortedFunc(maps.Keys(x.mu.own), func(a, b core.GroupID) int { return cmp.Compare(x.mu.own[a].at, x.mu.own[b].at) })
	for _, group := range groups[max(len(groups)-core.MaxOpenings, 0):] {
		own = append(own, core.BreakerOpening{Group: group, Number: x.mu.own[group].number})
	}
	return own, counter
}

// answered takes over what a run of a controller answered to ask.
func (x *openings) answered(controller core.HostID, run core.RunID, counter uint64, open []core.BreakerOpening, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, t := range x.mu.told {
		if id != controller && now.Sub(t.at) > openingsKept {
			delete(x.mu.told, id)
			x.countLocked()
		}
	}
	t := x.mu.told[controller]
	switch {
	case t == nil && counter == 0:
		return // no breaker has opened since it started
	case t == nil:
		t = &toldOpenings{run: run}
		x.mu.told[controller] = t
	}
	t.at = now
	switch {
	case counter != t.counter:
		t.run, t.counter, t.open = run, counter, open
	case run != t.run: // it has the same counter by chance
		t.run, t.counter, t.open = run, 0, nil
	default:
		return
	}
	x.countLocked()
}

// countLocked numbers what lasts on other hosts, and finds the groups that are to hear of it.
func (x *openings) countLocked() {
	known, newest := make(map[core.BreakerOpening]uint64), make(map[core.GroupID]uint64)
	for _, t := range x.mu.told {
		for _, o := range t.open {
			n := cmp.Or(x.mu.known[o], known[o])
			if n == 0 {
				x.mu.last++
				n = x.mu.last
			}
			known[o], newest[o.Group] = n, max(newest[o.Group], n)
		}
	}
	for group, n := range newest {
		if n != x.mu.newest[group] {
			x.mu.changed[group] = struct{}{}
		}
	}
	for group := range x.mu.newest {
		if newest[group] == 0 {
			x.mu.changed[group] = struct{}{}
		}
	}
	x.mu.known, x.mu.newest = known, newest
	if len(x.mu.changed) > 0 {
		poke(x.again)
	}
}

// of is the number of the newest opening of a group that lasts on another host; 0: none does.
func (x *openings) of(group core.GroupID) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.newest[group]
}

// takeChanged answers the groups that are to hear of another newest opening, each once.
func (x *openings) takeChanged() (groups []core.GroupID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for group := range x.mu.changed {
		groups = append(groups, group)
	}
	clear(x.mu.changed)
	return groups
}

// tellOpenings tells groups of openings on other hosts.
func (h *Host) tellOpenings(context.Context) {
	for _, id := range h.openings.takeChanged() {
		if g := h.loaded(id); g != nil { // else groupOf asks
			g.hearOpenings()
			g.pump()
		}
	}
}

// hearOpenings tells the rules of the newest opening on another host.
func (g *group) hearOpenings() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.rules.Elsewhere(g.h.openings.of(g.id), g.h.deps.Now())
}

// noteOpeningLocked has other hosts hear whether the breaker is open here. Without a share there is nothing that it is
// open for.
func (g *group) noteOpeningLocked() {
	number := g.mu.rules.Opening()
	if len(g.mu.shares) == 0 {
		number = 0
	}
	if opening := number > 0; opening || g.mu.opening {
		g.mu.opening = opening
		g.h.openings.note(g.id, number)
	}
}
