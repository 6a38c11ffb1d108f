package controller

import (
	"context"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// catchUp brings the cache up to the rows of extents that were named: hints, create rows and seal rows, as load does
// for all. made is as load has it.
func (h *Host) catchUp(ctx context.Context, all map[core.ExtentID]namedExtent, ids []core.ExtentID, made time.Time) error {
	for some := range slices.Chunk(ids, sealRowsAtOnce) {
		if err := h.catchUpSome(ctx, all, some, made); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) catchUpSome(ctx context.Context, all map[core.ExtentID]namedExtent, ids []core.ExtentID, made time.Time) error {
	open, err := h.hints(ctx, metadata.HintOpen, ids)
	if err != nil {
		return err
	}
	live, err := h.hints(ctx, metadata.HintLive, ids)
	if err != nil {
		return err
	}
	var hinted, young []metadata.ExtentRecord
	var rest []core.ExtentID
	stillOpen := make(map[core.ExtentID]bool, len(ids))
	for _, id := range ids {
		r, hint := live[id]
		_, known := h.extents.Get(id)
		_, stillOpen[id] = open[id]
		switch {
		case !hint:
			rest = append(rest, id)
		case !known && r.Created.After(made):
			young = append(young, r)
		default:
			hinted = append(hinted, r)
		}
	}
	there, err := h.registered(ctx, young)
	if err == nil {
		_, err = h.takeIn(ctx, append(hinted, there...), stillOpen)
	}
	if err != nil {
		return err
	}
	return h.catchUpUnhinted(ctx, all, rest)
}

// catchUpUnhinted is catchUp for extents that have no live hint: they are retired, or the hint is not there yet.
func (h *Host) catchUpUnhinted(ctx context.Context, all map[core.ExtentID]namedExtent, ids []core.ExtentID) error {
	if len(ids) == 0 {
		return nil
	}
	rows, err := h.sealRows(ctx, ids)
	if err != nil {
		return err
	}
	var keys []metadata.Key
	untold := make(map[core.ExtentID]bool) // without the hints, nothing says that holders were told
	for _, id := range ids {
		row, sealed := rows[id]
		e, known := h.extents.Get(id)
		if sealed && row.State == core.ExtentRetired {
			h.forgetExtent(id)
			continue
		}
		if sealed && known {
			h.took(row)
		}
		queue := all[id].queue
		if sealed {
			queue = row.Extent.Queue
		}
		if (!known || e.Minority != metadata.Maker{}) && !queue.IsZero() {
			keys, untold[id] = append(keys, metadata.ExtentKey(queue, id)), true
		}
	}
	found, err := metadata.GetRows(ctx, h.deps.Meta, metadata.Extents, keys, metadata.Quorum)
	if err != nil {
		return err
	}
	var created []metadata.ExtentRecord
	for _, row := range found {
		r, err := metadata.DecodeExtentRow(ctx, h.deps.Meta, row, metadata.Quorum)
		if err != nil {
			return err
		}
		if h.tellDamage(r); r.Known() {
			created = append(created, r.Value)
		}
	}
	_, err = h.takeIn(ctx, created, untold)
	return err
}

// hints are those of one kind of some extents.
func (h *Host) hints(ctx context.Context, hint metadata.Hint, ids []core.ExtentID) (map[core.ExtentID]metadata.ExtentRecord, error) {
	keys := make([]metadata.Key, len(ids))
	for i, id := range ids {
		keys[i] = metadata.HintKey(hint, id)
	}
	found, err := metadata.GetRows(ctx, h.deps.Meta, metadata.Work, keys, metadata.Quorum)
	if err != nil {
		return nil, err
	}
	out := make(map[core.ExtentID]metadata.ExtentRecord, len(found))
	for _, row := range found {
		if r, err := metadata.DecodeExtent(metadata.Work, row); !h.unread.skips(metadata.Work, row.Key, err) {
			out[r.ID] = r
		}
	}
	return out, nil
}
