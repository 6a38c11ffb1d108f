package controller

import (
	"context"
	"slices"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/metadata"
)

// retireEvery is how often deleted queues are looked for.
const retireEvery = 10 * time.Second

// retireDeleted runs beside the rounds: it reads a row of each queue that has extents, and slow metadata must not hold
// up seals and moves.
func (h *Host) retireDeleted(ctx context.Context) {
	lifecycle.Every(ctx, retireEvery, h.retirement.Deleted)
}

// ended is what the retirement of extents needs of the controller.
type ended struct{ h *Host }

func (x ended) Look(id core.ExtentID, f func(ctx context.Context)) bool {
	return x.h.look(id, f) == lookBegan
}

func (x ended) Seal(ctx context.Context, e core.Extent, reason string) error {
	_, err := x.h.seal(ctx, order{extent: e, reason: reason})
	return err
}

// Delete leaves out stores that are away: the inventory of one that comes back shows what it still has, and the row
// stays.
func (x ended) Delete(ctx context.Context, row metadata.SealRecord) error {
	for _, store := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(row.Extent.Replicas, row.Holders)))) {
		if !x.h.stores.Answers(store) {
			continue
		}
		if err := x.h.replicas.Remove(ctx, row, core.Place{Store: store}); err != nil {
			return core.Errorf(core.CodeOf(err), "remove the replica on %s: %w", store, err)
		}
	}
	return nil
}

func (x ended) Left(e core.Extent, home core.Home) {
	x.h.shares.touch(catalog.Extent{ExtentRecord: metadata.ExtentRecord{Extent: e}, Home: home}.Reader())
}

func (x ended) Forget(e core.Extent, home core.Home) {
	x.h.extents.Remove(e.ID)
	x.h.noteStuck(e.ID, false)
	x.Left(e, home)
	x.h.metrics.retired.Inc()
}
