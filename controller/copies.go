package controller

import (
	"context"

	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// copies is what repair needs of the controller.
type copies struct{ h *Host }

// Rank implements repair.Owner.
func (x copies) Rank(id core.ExtentID, zones []string, among []core.HostID) []core.HostID {
	candidates := make([]placement.Candidate, 0, len(among))
	for _, id := range among {
		if st, ok := x.h.stores.Get(id); ok {
			c := st.Candidate()
			if x.h.skewed.wrong(id) {
				c.Tier = placement.Skewed
			}
			candidates = append(candidates, c)
		}
	}
	return placement.Replicas(id.String(), placement.Need{Want: len(candidates), Min: len(candidates), Zones: zones}, candidates)
}

// Moved implements repair.Owner.
func (x copies) Moved(e core.Extent) { x.h.shares.touchHolders(e) }

// Gained implements repair.Owner.
func (x copies) Gained(ctx context.Context, row metadata.SealRecord) {
	x.Moved(row.Extent)
	if e, ok := x.h.extents.Get(row.Extent.ID); ok && e.Told {
		x.h.finished(ctx, row)
	}
}
