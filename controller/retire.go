package controller

import (
	"context"
	"slices"
	"time"

	"github.com/columbamq/columba/controller/retirement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// retireEvery is how often deleted queues are looked for.
const retireEvery = 10 * time.Second

// ended is what the retirement of extents needs of the controller.
type ended struct{ h *Host }

func (x ended) Queues() []core.QueueID { return x.h.extents.queues() }

func (x ended) Has(queue core.QueueID) bool { return x.h.extents.has(queue) }

func (x ended) Extents(queue core.QueueID) []retirement.Extent {
	all := x.h.extents.of(queue)
	out := make([]retirement.Extent, len(all))
	for i, e := range all {
		out[i] = toRetire(e)
	}
	return out
}

func (x ended) Extent(id core.ExtentID) (retirement.Extent, bool) {
	e, ok := x.h.extents.get(id)
	return toRetire(e), ok
}

func (x ended) ReadBy(queue core.QueueID, group core.GroupID) (out []core.ExtentID) {
	for _, e := range x.h.extents.readBy(queue, group) {
		out = append(out, e.ID)
	}
	return out
}

func toRetire(e extent) retirement.Extent {
	return retirement.Extent{Extent: e.Extent, State: e.state, Home: e.home, Kept: e.kept}
}

func (x ended) Took(row metadata.SealRecord) { x.h.extents.took(row) }

func (x ended) Look(id core.ExtentID, f func(ctx context.Context)) { x.h.look(id, f) }

func (x ended) Seal(ctx context.Context, e core.Extent, reason string) error {
	_, err := x.h.seal(ctx, order{extent: e, reason: reason})
	return err
}

// Delete leaves out stores that are away: the inventory of one that comes back shows what it still has, and the row stays.
func (x ended) Delete(ctx context.Context, row metadata.SealRecord) error {
	for _, store := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(row.Extent.Replicas, row.Holders)))) {
		if !x.h.stores.answers(store) {
			continue
		}
		if err := x.h.replicas.Remove(ctx, row, core.Place{Store: store}); err != nil {
			return core.Errorf(core.CodeOf(err), "remove the replica on %s: %w", store, err)
		}
	}
	return nil
}

func (x ended) Left(e core.Extent, home core.Home) {
	x.h.shares.touch(extent{ExtentRecord: metadata.ExtentRecord{Extent: e}, home: home}.reader())
}

func (x ended) Forget(e core.Extent, home core.Home) {
	x.h.extents.remove(e.ID)
	x.h.noteStuck(e.ID, false)
	x.Left(e, home)
	x.h.metrics.retired.Inc()
}
