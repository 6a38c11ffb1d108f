package controller

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// registration is the create row of an extent that this controller does not know. When the row was lost, the queue says
// how many copies there are to be, and who reads it.
func (h *Host) registration(ctx context.Context, e core.Extent) (metadata.ExtentRecord, error) {
	r, err := h.createdRow(ctx, e)
	switch {
	case err != nil:
		return r, err
	case !r.Extent.Equal(e):
		return r, core.Errorf(core.CodeConflict, "extent %s has another tuple in its row", e.ID)
	case !r.Created.IsZero():
		return r, nil
	}
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(e.Queue), metadata.Quorum)
	if err != nil && core.CodeOf(err) != core.CodeNotFound {
		return r, err
	}
	r.Created, r.Wanted, r.Home = e.ID.Time(), q.Spec.Replicas, q.Home
	if e.Chain > 1 {
		r.Before, err = h.placeBefore(ctx, e)
	}
	return r, err
}

// placeBefore is the place before an extent whose create row was lost: its seal row knows it, or, while the extent is
// the head, the row of the head.
func (h *Host) placeBefore(ctx context.Context, e core.Extent) (core.ExtentID, error) {
	row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
	if core.CodeOf(err) != core.CodeNotFound {
		return row.Before, err
	}
	head, err := metadata.ReadHead(ctx, h.deps.Meta, e.Queue, metadata.Serial)
	if err != nil || head.Extent.ID != e.ID {
		return core.ExtentID{}, err
	}
	return head.Before, nil
}

// writeExtent writes the hints first: a hint without an extent is found and sealed, an extent without a hint would be
// overlooked.
func (h *Host) writeExtent(ctx context.Context, r metadata.ExtentRecord, now time.Time) error {
	if err := h.writeHints(ctx, r, now); err != nil {
		return err
	}
	return h.writeRow(ctx, r, now, metadata.Quorum)
}

// sideBySide does both, and answers when both have ended. The error of the second one goes first.
func sideBySide(first, second func() error) error {
	var g errgroup.Group
	g.Go(first)
	return cmp.Or(second(), g.Wait())
}

func (h *Host) writeHint(ctx context.Context, hint metadata.Hint, r metadata.ExtentRecord, at time.Time, c metadata.Consistency) error {
	return metadata.Write(ctx, h.deps.Meta, metadata.Work, metadata.HintKey(hint, r.ID), r, at, 0, c)
}

func (h *Host) writeHints(ctx context.Context, r metadata.ExtentRecord, now time.Time) error {
	hints := make([]metadata.Row, 0, 2)
	for _, hint := range []metadata.Hint{metadata.HintLive, metadata.HintOpen} {
		row, err := metadata.NewRow(metadata.Work, metadata.HintKey(hint, r.ID), r, now)
		if err != nil {
			return err
		}
		hints = append(hints, row)
	}
	return h.deps.Meta.PutAll(ctx, metadata.Work, hints, metadata.One)
}

// writeRow writes the create row: at Quorum, where the deletion of its queue, and another controller that gives the
// next place of a chain out, find it.
func (h *Host) writeRow(ctx context.Context, r metadata.ExtentRecord, now time.Time, c metadata.Consistency) error {
	return metadata.Write(ctx, h.deps.Meta, metadata.Extents, metadata.ExtentKey(r.Queue, r.ID), r, now, 0, c)
}

// unmake removes the rows of a new extent that could not be written completely, or whose write may arrive late. No
// writer knows the extent, so no writer would ever seal it. Rows that cannot be removed within a minute are left to the
// next start.
func (h *Host) unmake(r metadata.ExtentRecord, written time.Time) {
	h.look(r.ID, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		for wait := time.Second; ; wait *= 2 {
			err := h.gate.wait(ctx)
			if err == nil {
				err = h.removeRows(ctx, r, written)
			}
			if err == nil {
				return
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				h.log.Warn("rows of an extent that was not made stay behind", "extent", r.ID, "err", err)
				return
			}
		}
	})
}

// removeRows wins over writes of that time, also over those that come later.
func (h *Host) removeRows(ctx context.Context, r metadata.ExtentRecord, written time.Time) error {
	for _, hint := range []metadata.Hint{metadata.HintOpen, metadata.HintLive} {
		if err := h.deps.Meta.Remove(ctx, metadata.Work, metadata.HintKey(hint, r.ID), written, metadata.One); err != nil {
			return err
		}
	}
	return h.deps.Meta.Remove(ctx, metadata.Extents, metadata.ExtentKey(r.Queue, r.ID), written, metadata.One)
}
