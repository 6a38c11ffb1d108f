package controller

import (
	"context"
	"slices"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// waitingFor are the undecided extents that have a replica on a store, those after an id, by id. Of several controllers
// each has tried only some of them: those that the others began to seal, and did not end in the time of a try, are in
// the rows.
func (h *Host) waitingFor(ctx context.Context, store core.HostID, after core.ExtentID) ([]undecidedExtent, error) {
	waits := func(e core.Extent) bool {
		return slices.Contains(e.Replicas, store) && slices.Compare(e.ID.ID[:], after.ID[:]) > 0
	}
	out := h.undecided.list(func(x undecidedExtent) bool { return waits(x.Extent) })
	if h.cfg.Alone {
		return out, nil
	}
	known := make(map[core.ExtentID]bool, len(out))
	for _, x := range out {
		known[x.ID] = true
	}
	var others []core.ExtentID
	for r, err := range metadata.Hints(ctx, h.deps.Meta, metadata.HintOpen, metadata.Quorum) {
		switch {
		case h.unread.skips(metadata.Work, r.Key, err):
			continue
		case err != nil:
			return nil, core.Errorf(core.CodeOf(err), "look for extents that stay sealing: %w", err)
		}
		if waits(r.Value.Extent) && !known[r.Value.ID] {
			others = append(others, r.Value.ID)
		}
	}
	for some := range slices.Chunk(others, sealRowsAtOnce) {
		rows, err := h.sealRows(ctx, some)
		if err != nil {
			return nil, core.Errorf(core.CodeOf(err), "look for extents that stay sealing: %w", err)
		}
		for _, r := range rows {
			if r.State == core.ExtentSealing && h.deps.now().Sub(r.Changed) >= sealTimeout {
				out = append(out, undecidedExtent{Extent: r.Extent, since: r.Changed, reason: "another controller could not decide its end"})
			}
		}
	}
	slices.SortFunc(out, func(a, b undecidedExtent) int { return slices.Compare(a.ID.ID[:], b.ID.ID[:]) })
	return out, nil
}
