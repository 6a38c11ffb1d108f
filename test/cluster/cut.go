package cluster

import (
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// lostAfter is how long membership shows the hosts on the other side of a cut.
const lostAfter = 4 * time.Second

// divide cuts the cluster in two: some hosts with one copy of the metadata of three, and clients at some addresses, and
// all others. Nothing gets from one side to the other until heal; the copies learn of each other's writes late after
// that. The metadata must be of Options.Divergence.
func (c *Cluster) divide(side []core.HostID, clients []string, late time.Duration) (heal func()) {
	inside, outside := slices.Clone(clients), []string{"client"}
	var in, out []core.HostID
	for _, id := range c.order {
		h := c.hosts[id]
		if slices.Contains(side, id) {
			inside, in = append(inside, h.addr), append(in, id)
			s := metadata.Store(c.copies.Apart())
			h.meta.way.Store(&s)
		} else {
			outside, out = append(outside, h.addr), append(out, id)
		}
	}
	var paths []path
	for _, a := range inside {
		for _, b := range outside {
			paths = append(paths, path{a, b}, path{b, a})
		}
	}
	suspect := func(by int) {
		for _, a := range in {
			for _, b := range out {
				for _, pair := range [][2]core.HostID{{a, b}, {b, a}} {
					if err := c.roster.suspect(pair[0], pair[1], by); err != nil {
						c.t.Error(err)
					}
				}
			}
		}
	}
	c.copies.Cut()
	mend := c.net.drop(paths...)
	c.later(lostAfter, func() { suspect(1) })
	return func() {
		c.copies.Rejoin()
		mend()
		c.later(time.Second, func() { suspect(-1) })
		c.later(late, c.copies.Repair)
	}
}
