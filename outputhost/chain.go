package outputhost

import (
	"cmp"
	"maps"
	"slices"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// In a group of a CP queue an extent's messages are handed out for the first time only when all of every earlier extent
// of the chain have been. A message that is delivered again – after a nack, a lost lock, a lost consumer – may come
// later than messages that followed it.

// orderLocked lets the first extents of the chain begin, up to the first one of which something was not handed out yet.
func (g *group) orderLocked() {
	if !g.mu.reorder {
		return
	}
	g.mu.reorder = false
	ordered := g.orderedLocked()
	if n := len(ordered); n == 0 || ordered[n-1].extent.Chain == 0 { // the chain is at the end
		return
	}
	wait := false
	for _, s := range ordered {
		if s.extent.Chain == 0 { // timers have no order, nor has what was merged into the group
			continue
		}
		wait = wait || g.mu.gap > 0 && s.extent.Chain > g.mu.gap
		s.rules.Wait(wait)
		wait = wait || !s.end || !s.rules.Begun(s.l)
	}
}

// orderedLocked are the group's shares: by their place in the chain, else the oldest extent first.
func (g *group) orderedLocked() []*share {
	if g.mu.ordered == nil {
		g.mu.ordered = slices.SortedFunc(maps.Values(g.mu.shares), func(a, b *share) int {
			return cmp.Or(cmp.Compare(a.extent.Chain, b.extent.Chain), slices.Compare(a.extent.ID.ID[:], b.extent.ID.ID[:]))
		})
	}
	return g.mu.ordered
}

// sortChains puts the assignments of each chain in its order.
func sortChains(list []*pb.Assignment) {
	slices.SortStableFunc(list, func(a, b *pb.Assignment) int {
		return cmp.Or(slices.Compare(a.Group, b.Group), cmp.Compare(a.GetExtent().GetChain(), b.GetExtent().GetChain()))
	})
}

// lower of two places of a chain; 0 is none.
func lower(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// setGaps tells each group of a queue which place it has to wait for: the lowest one that the list of the queue names
// and that is not here.
func (h *Host) setGaps(queue core.QueueID, list []*pb.Assignment) {
	groups, missing := make(map[core.GroupID]*group), make(map[core.GroupID]uint64)
	for _, g := range h.groupsOf(queue) {
		groups[g.id] = g
	}
	for _, a := range list {
		chain := a.GetExtent().GetChain()
		g := groups[core.GroupID{ID: core.ID(a.Group)}]
		if chain == 0 || g == nil {
			continue
		}
		g.mu.Lock()
		s := g.mu.shares[core.ExtentID{ID: core.ID(a.Extent.Id)}]
		there := s != nil && s.generation == a.Counter && a.Epoch <= g.mu.record.Epoch
		g.mu.Unlock()
		if !there {
			missing[g.id] = lower(missing[g.id], chain)
		}
	}
	for id, g := range groups {
		g.setGap(missing[id])
	}
}

// setGap has the group wait for a place of its chain; 0: for none.
func (g *group) setGap(place uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.reorder = g.mu.reorder || g.mu.gap != place
	g.mu.gap = place
}
