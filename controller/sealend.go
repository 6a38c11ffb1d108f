package controller

import (
	"context"
	"errors"
	"time"

	"github.com/columbamq/columba/controller/repair"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
	"github.com/columbamq/columba/metadata"
)

// sealed answers what was decided before: writers ask again until enough copies are there.
func (h *Host) sealed(ctx context.Context, o order) (metadata.SealRecord, error) {
	row, err := h.endRow(ctx, o.extent.ID)
	if err != nil {
		return row, core.Errorf(core.CodeOf(err), "seal extent %s: %w", o.extent.ID, err)
	}
	if !row.Enough() && row.LostFrom == 0 {
		h.repairs.Want(row.Extent.ID)
	}
	return h.answerEnd(ctx, row, o)
}

// endRow reads the row of an extent that has its end.
func (h *Host) endRow(ctx context.Context, id core.ExtentID) (metadata.SealRecord, error) {
	row, err := h.sealRow(ctx, id)
	if err == nil && !row.State.HasEnd() {
		err = core.Errorf(core.CodeCorrupt, "its row has no end any more")
	}
	return row, err
}

// sealRow reads the row of an extent; CodeNotFound. An end stays as it is, so one that is read at Quorum counts. A row
// without one is read again at Serial, which costs a round of Paxos.
func (h *Host) sealRow(ctx context.Context, id core.ExtentID) (row metadata.SealRecord, err error) {
	for _, c := range []metadata.Consistency{metadata.Quorum, metadata.Serial} {
		row, _, err = metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(id), c)
		if err == nil && row.State.HasEnd() || err != nil && core.CodeOf(err) != core.CodeNotFound {
			break
		}
	}
	return row, err
}

// answerEnd answers a row that has its end. One that cuts off what its writer acknowledged, which a sealer fixed that
// did not know of it, is refused until an operator's force accepts the loss: the writer keeps what it owes until then,
// and a CP queue takes nothing. The end itself never changes. Of an extent that is retired nobody needs anything.
func (h *Host) answerEnd(ctx context.Context, row metadata.SealRecord, o order) (metadata.SealRecord, error) {
	if row.Due.Before(o.due) && row.State != core.ExtentRetired {
		row = h.noteDue(ctx, row, o.due)
	}
	switch {
	case row.State == core.ExtentRetired:
		return row, nil
	case o.force:
		return h.acceptLoss(ctx, row, o)
	case row.Forced, row.L >= o.floor:
		return row, nil
	}
	return row, h.refuseEnd(ctx, row, o.floor)
}

// noteDue keeps the word of a writer that asked for a seal another had begun. Without it the extent is only kept for
// longer.
func (h *Host) noteDue(ctx context.Context, row metadata.SealRecord, due time.Time) metadata.SealRecord {
	now, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(row.Extent.ID), func(r *metadata.SealRecord) error {
		if !r.Due.Before(due) {
			return metadata.ErrNoChange
		}
		r.Due = due
		return nil
	})
	if err != nil {
		h.log.Info("the due time of a timer extent is not recorded: the extent is kept until its horizon", "extent", row.Extent.ID, "err", err)
		return row
	}
	h.extents.Took(now)
	return now
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
		h.log.Error("seal alarm", "extent", row.Extent.ID, "alarm", seal.AlarmBelowFloor, "reason", "it was sealed without an answer of its writer", "end_seq", row.L, "floor", floor)
	}
	return core.Errorf(core.CodeConflict, "extent %s was sealed at %d, below the acknowledged %d; `columba seal --force` accepts the loss", row.Extent.ID, row.L, floor)
}

// acceptLoss takes an operator's word for what is lost: what was acknowledged beyond the end, or else what lies within
// it and no store has any more.
func (h *Host) acceptLoss(ctx context.Context, row metadata.SealRecord, o order) (metadata.SealRecord, error) {
	if row.Forced || row.L >= max(o.floor, row.Floor) {
		next, err := h.repairs.GiveUp(ctx, row, o.quarantined)
		if core.CodeOf(err) != core.CodeConflict || errors.Is(err, repair.ErrQuarantined) || errors.Is(err, repair.ErrAway) {
			return next, err
		}
		if row.Forced {
			return row, nil
		}
		return row, core.Errorf(core.CodeConflict, "extent %s is sealed already at %d, with all that is known to be acknowledged, and nothing of it is known to be lost: %w", row.Extent.ID, row.L, err)
	}
	row, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(row.Extent.ID), func(r *metadata.SealRecord) error {
		if r.Forced {
			return metadata.ErrNoChange
		}
		r.Floor = max(r.Floor, o.floor)
		r.Forced, r.Lost, r.Changed = true, r.Floor-r.L, h.deps.now()
		return nil
	})
	if err != nil {
		return row, core.Errorf(core.CodeOf(err), "accept the end of extent %s: %w", row.Extent.ID, err)
	}
	h.extents.Took(row)
	h.log.Warn("an operator accepted that an extent lacks acknowledged records", "extent", row.Extent.ID, "end_seq", row.L, "lost", row.Lost)
	return row, nil
}
