package controller

import (
	"slices"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// unreached are, with those named, the controllers that may be beyond a cut: they were there within
// membership.RememberGone, did not leave in good order, and are not in the membership. Without a majority of the
// metadata each makes extents of AP queues of which this side hears when the cut is over (docs/adr/0065), so what is
// fixed for all extents of a queue does not concern these.
func (h *Host) unreached(with ...core.HostID) []core.HostID {
	out := slices.Clone(with)
	for _, g := range h.deps.Members.Gone() {
		if !g.Left && slices.Contains(g.Roles, "controller") {
			out = append(out, g.ID)
		}
	}
	shown := h.deps.Members.Hosts("controller")
	for _, id := range h.duties.Others() { // one whose lease counts and whom gossip does not show
		if !slices.ContainsFunc(shown, func(m membership.Host) bool { return m.ID == id }) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
