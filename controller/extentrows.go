package controller

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/controller/catalog"
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
	return h.rebuilt(ctx, e)
}

// createdRow is the create row of an extent, or what a store says of it when there is none. A hint or the seal row
// stands in for a row that cannot be decoded; without them, the record is rebuilt. Such an extent was not retired,
// because its create row would be gone.
func (h *Host) createdRow(ctx context.Context, e core.Extent) (metadata.ExtentRecord, error) {
	r, err := metadata.ReadExtentRow(ctx, h.deps.Meta, e.Queue, e.ID, metadata.Quorum)
	if core.CodeOf(err) == core.CodeNotFound {
		return metadata.ExtentRecord{Extent: e}, nil
	}
	if err != nil {
		return metadata.ExtentRecord{}, err
	}
	if h.tellDamage(r); !r.Known() {
		return h.rebuilt(ctx, e)
	}
	return r.Value, nil
}

// wasMade fails for an extent that this controller does not know, and that no row and no store shows: a seal row of it
// would stay sealing for ever. CodeNotFound. The first seal of a known extent reads nothing here.
func (h *Host) wasMade(ctx context.Context, o order) error {
	e := o.extent
	if _, known := h.extents.Get(e.ID); known || o.found || h.strays.has(e) {
		return nil
	}
	if created, err := h.createdRow(ctx, e); err != nil || !created.Created.IsZero() {
		return err
	}
	for _, hint := range []metadata.Hint{metadata.HintLive, metadata.HintOpen} {
		found, err := h.hints(ctx, hint, []core.ExtentID{e.ID})
		if err != nil {
			return err
		}
		if r, hinted := found[e.ID]; hinted && r.Extent.Equal(e) {
			return nil
		}
	}
	head, err := metadata.ReadHead(ctx, h.deps.Meta, e.Queue, metadata.Quorum)
	if err == nil && !head.Extent.Equal(e) {
		err = core.Errorf(core.CodeNotFound, "it has no create row, no hint and no head, and no store has shown it; if a store has it, it is registered within %s of the store's next inventory", strayAfter)
	}
	return err
}

// rebuilt is the create row of an extent without one that can be read.
func (h *Host) rebuilt(ctx context.Context, e core.Extent) (metadata.ExtentRecord, error) {
	r := metadata.ExtentRecord{Extent: e}
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(e.Queue), metadata.Quorum)
	if err != nil && core.CodeOf(err) != core.CodeNotFound {
		return r, err
	}
	r.Created, r.Wanted, r.Home, err = e.ID.Time(), q.Spec.Replicas, q.Home, nil
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
// overlooked. A create row that cannot be decoded stays as it is: a newer version may have written it.
func (h *Host) writeExtent(ctx context.Context, r metadata.ExtentRecord, now time.Time) error {
	if err := h.writeHints(ctx, r, now); err != nil || h.unread.has(metadata.Extents, metadata.ExtentKey(r.Queue, r.ID)) {
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

// known are the extents of a queue that its groups read, as the rows say: another controller may have made or sealed
// some, of which this one has not heard. The rows are read after the group's was written, and retention reads the
// groups after its mark: one of them meets the other, so a group that is made or rewound meanwhile gets all of an
// extent or nothing. See extent.leaving. An extent of which no row can be decoded is left out: no position is written
// in it, so that a group gets all of it when it is known again.
func (h *Host) known(ctx context.Context, queue core.QueueID) ([]catalog.Extent, error) {
	extents := make(map[core.ExtentID]catalog.Extent)
	var unhinted []metadata.ExtentRecord
	for r, err := range metadata.ExtentRows(ctx, h.deps.Meta, queue, metadata.Quorum) {
		if err != nil {
			return nil, core.Errorf(core.CodeOf(err), "list the extents of queue %s: %w", queue, err)
		}
		if h.tellDamage(r); !r.Known() {
			continue
		}
		extents[r.Value.ID] = catalog.Extent{ExtentRecord: r.Value, State: core.ExtentOpen, Home: r.Value.Home}
		if _, known := h.extents.Get(r.Value.ID); !known && r.Value.Minority == (metadata.Maker{}) && h.deps.now().Sub(r.Value.Created) >= strayAfter {
			unhinted = append(unhinted, r.Value)
		}
	}
	for _, e := range h.extents.Of(queue) {
		extents[e.ID] = e
	}
	const page = 500
	keys := make([]metadata.Key, 0, len(extents))
	for id := range extents {
		keys = append(keys, metadata.SealKey(id))
	}
	for some := range slices.Chunk(keys, page) {
		rows, err := metadata.ReadRows[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, some, metadata.Serial)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			h.extents.Took(r)
			extents[r.Extent.ID] = extents[r.Extent.ID].Took(r)
		}
	}
	for _, r := range unhinted { // its maker died before the hints were written, or they were lost
		if extents[r.ID].State == core.ExtentOpen {
			if err := h.adopt(ctx, r); err != nil {
				return nil, err
			}
		}
	}
	out := make([]catalog.Extent, 0, len(extents))
	for _, e := range extents {
		if e.Home.Kind == core.HomeOwn {
			out = append(out, e)
		}
	}
	return out, nil
}
