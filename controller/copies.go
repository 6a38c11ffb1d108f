package controller

import (
	"context"

	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/controller/repair"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// copies is what repair needs of the controller.
type copies struct{ h *Host }

// Sealed implements repair.Owner.
func (x copies) Sealed() []repair.Extent {
	return x.h.extents.toRepair(func(e *extent) bool { return e.state == core.ExtentSealed && !e.spent })
}

// Extent implements repair.Owner.
func (x copies) Extent(id core.ExtentID) (repair.Extent, bool) {
	e, ok := x.h.extents.get(id)
	return toRepair(e), ok
}

func toRepair(e extent) repair.Extent {
	return repair.Extent{Extent: e.Extent, Wanted: e.wanted(), Holders: e.holders, LostFrom: e.lostFrom}
}

// Stores implements repair.Owner.
func (x copies) Stores() map[core.HostID]repair.Store {
	s := x.h.stores
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[core.HostID]repair.Store, len(s.mu.byID))
	for id, st := range s.mu.byID {
		out[id] = repair.Store{ID: id, Zone: st.Zone, Disk: st.identity.Disk, Answers: st.answering(), Refuses: st.refuses, Seen: st.seen}
	}
	return out
}

// Rank implements repair.Owner.
func (x copies) Rank(id core.ExtentID, zones []string, among []core.HostID) []core.HostID {
	candidates := make([]placement.Candidate, 0, len(among))
	for _, id := range among {
		if st, ok := x.h.stores.get(id); ok {
			c := st.candidate()
			if x.h.skewed.wrong(id) {
				c.Tier = placement.Skewed
			}
			candidates = append(candidates, c)
		}
	}
	return placement.Replicas(id.String(), placement.Need{Want: len(candidates), Min: len(candidates), Zones: zones}, candidates)
}

// Took implements repair.Owner.
func (x copies) Took(row metadata.SealRecord) { x.h.extents.took(row) }

// Moved implements repair.Owner.
func (x copies) Moved(e core.Extent) { x.h.shares.touchHolders(e) }

// Gained implements repair.Owner.
func (x copies) Gained(ctx context.Context, row metadata.SealRecord) {
	x.Moved(row.Extent)
	if e, ok := x.h.extents.get(row.Extent.ID); ok && e.told {
		x.h.finished(ctx, row)
	}
}
