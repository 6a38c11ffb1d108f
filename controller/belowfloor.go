package controller

import (
	"context"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
	"github.com/columbamq/columba/metadata"
)

// answerEnd answers a row that has its end. One that cuts off what its writer acknowledged, which a sealer fixed that did not know of it, is
// refused until an operator's force accepts the loss: the writer keeps what it owes until then, and a CP queue takes nothing. The end itself
// never changes. Of an extent that is retired nobody needs anything.
func (h *Host) answerEnd(ctx context.Context, row metadata.SealRecord, o order) (metadata.SealRecord, error) {
	switch {
	case row.Forced, row.State == core.ExtentRetired, row.L >= o.floor && !o.force:
		return row, nil
	case row.L >= max(o.floor, row.Floor):
		return row, core.Errorf(core.CodeConflict, "extent %s is sealed already at %d, with all that is known to be acknowledged; there is nothing to accept", row.Extent.ID, row.L)
	case o.force:
		return h.acceptLoss(ctx, row, o.floor)
	}
	return row, h.refuseEnd(ctx, row, o.floor)
}

// refuseEnd keeps the floor in the row, for an operator's force to go by.
func (h *Host) refuseEnd(ctx context.Context, row metadata.SealRecord, floor core.Seq) error {
	news := false
	_, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(row.Extent.ID), func(r *metadata.SealRecord) error {
		if news = r.Floor < floor; !news {
			return metadata.ErrNoChange
		}
		r.Floor, r.Changed = floor, h.deps.now()
		return nil
	})
	if err != nil {
		return core.Errorf(core.CodeOf(err), "seal extent %s: raise its floor: %w", row.Extent.ID, err)
	}
	h.metrics.alarms.WithLabelValues(string(seal.AlarmBelowFloor)).Inc()
	if news {
		h.log.Error("seal alarm", "extent", row.Extent.ID, "alarm", seal.AlarmBelowFloor, "reason", "it was sealed without its writer's word", "l", row.L, "floor", floor)
	}
	return core.Errorf(core.CodeConflict, "extent %s was sealed at %d, below the acknowledged %d; `columba seal --force` accepts the loss", row.Extent.ID, row.L, floor)
}

func (h *Host) acceptLoss(ctx context.Context, row metadata.SealRecord, floor core.Seq) (metadata.SealRecord, error) {
	row, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(row.Extent.ID), func(r *metadata.SealRecord) error {
		if r.Forced {
			return metadata.ErrNoChange
		}
		r.Floor = max(r.Floor, floor)
		r.Forced, r.Lost, r.Changed = true, r.Floor-r.L, h.deps.now()
		return nil
	})
	if err != nil {
		return row, core.Errorf(core.CodeOf(err), "accept the end of extent %s: %w", row.Extent.ID, err)
	}
	h.extents.took(row)
	h.log.Warn("an operator accepted that an extent lacks acknowledged records", "extent", row.Extent.ID, "l", row.L, "lost", row.Lost)
	return row, nil
}
