package quota

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// stored are the live extents of a queue that its groups read.
func (k *Keeper) stored(ctx context.Context, queue core.QueueID) ([]catalog.Extent, error) {
	all := k.Extents.Of(queue)
	if !k.Alone {
		var err error
		if all, err = k.brought(ctx, queue, all); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(all, func(e catalog.Extent) bool {
		return e.State == core.ExtentRetired || e.Home.Kind != core.HomeOwn
	}), nil
}

// brought adds to known extents of a queue what other controllers did: the controller of a namespace is not that of its
// queues, and its catalog may be half a minute old.
func (k *Keeper) brought(ctx context.Context, queue core.QueueID, known []catalog.Extent) ([]catalog.Extent, error) {
	byID := make(map[core.ExtentID]catalog.Extent, len(known))
	unsure := make(map[core.ExtentID]bool, len(known)) // whether a seal row may say more
	for _, e := range known {
		byID[e.ID], unsure[e.ID] = e, true
	}
	for r, err := range metadata.ExtentRows(ctx, k.meta, queue, metadata.One) {
		if err != nil {
			return nil, core.Errorf(core.CodeOf(err), "list the extents of queue %s: %w", queue, err)
		}
		if !r.Known() { // nothing says how large it is
			continue
		}
		e, there := byID[r.Value.ID]
		if !there {
			e = catalog.Extent{ExtentRecord: r.Value, State: core.ExtentOpen, Home: r.Value.Home}
		}
		byID[e.ID], unsure[e.ID] = e, !e.State.HasEnd()
	}
	var keys []metadata.Key
	ids := make(map[metadata.Key]core.ExtentID)
	for id, is := range unsure {
		if is {
			key := metadata.SealKey(id)
			keys, ids[key] = append(keys, key), id
		}
	}
	rows, err := metadata.GetRows(ctx, k.meta, metadata.Seals, keys, metadata.One)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "read the ends of the extents of queue %s: %w", queue, err)
	}
	for _, row := range rows {
		seal, err := metadata.Decode[metadata.SealRecord](metadata.Seals, row)
		if err != nil {
			return nil, err
		}
		byID[ids[row.Key]] = byID[ids[row.Key]].Took(seal)
	}
	return slices.Collect(maps.Values(byID)), nil
}

// mostBytes bounds what an extent may hold: input hosts replace it at a quarter of that.
const mostBytes = 1 << 30

type fill struct {
	run   core.RunID // that tells of it
	last  core.Seq
	bytes uint64
	told  time.Time // last
}
