package controller

import (
	"context"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// createExtent makes an extent of an AP queue, or one of timers. The row by which it is made may be behind. If a
// majority has other settings of the queue once the rows of the extent are written, these are removed, and another
// extent is made. No writer has the first one before.
func (h *Host) createExtent(ctx context.Context, w wish) (core.Extent, error) {
	for {
		if err := h.readRow(ctx, &w); err != nil {
			return core.Extent{}, core.Errorf(core.CodeOf(err), "create an extent: %w", err)
		}
		r, err := h.newExtent(ctx, w, 0)
		if err != nil && w.given { // a majority may have settings by which it can be made
			w.row, w.given = nil, false
			continue
		}
		if err != nil {
			return core.Extent{}, err
		}
		now := h.deps.now()
		var q metadata.QueueRecord
		if err = h.writeNew(ctx, w, r, now); err == nil {
			q, err = h.queueAt(ctx, w)
		}
		if err != nil {
			h.unmake(r, now)
			return core.Extent{}, core.Errorf(core.CodeOf(err), "create extent %s: %w", r.ID, err)
		}
		if err = existing(q); err == nil && !w.minority && !alike(q, *w.row) {
			h.unmake(r, now)
			w.row, w.given = &q, false
			continue
		}
		h.register(w, r, now)
		if err != nil { // the deletion seals the extent
			return core.Extent{}, core.Errorf(core.CodeOf(err), "create an extent: %w", err)
		}
		return r.Extent, nil
	}
}

// alike reports whether extents are made alike by two rows of a queue, whose consistency never changes.
func alike(a, b metadata.QueueRecord) bool {
	return a.Home == b.Home && a.Spec.Durability == b.Spec.Durability && a.Spec.Replicas == b.Spec.Replicas && a.Spec.MinReplicas == b.Spec.MinReplicas
}

// newExtent is an extent that nobody knows of yet; chain is its place in the chain of a CP queue.
func (h *Host) newExtent(ctx context.Context, w wish, chain uint64) (r metadata.ExtentRecord, err error) {
	if err := h.readRow(ctx, &w); err != nil {
		return r, core.Errorf(core.CodeOf(err), "create an extent: %w", err)
	}
	q := *w.row
	if err := existing(q); err != nil {
		return r, err
	}
	if w.minority && q.Spec.Consistency == core.CP { // its timers, too
		return r, h.noMajority(w.queue)
	}
	now := h.deps.now()
	if wait := h.backOff(w.key(), now); wait > 0 {
		return r, core.Errorf(core.CodeUnavailable, "the last extents of queue %s failed at once; the next one is made in %s", q.Spec.Path, wait)
	}
	if ordered := q.Spec.Consistency == core.CP && w.kind == core.KindLog; ordered != (chain > 0) {
		return r, core.Errorf(core.CodeInternal, "queue %s is %s: its extents are made otherwise", q.Spec.Path, q.Spec.Consistency)
	}
	r = metadata.ExtentRecord{
		Extent: core.Extent{
			ID: core.ExtentID{ID: core.NewID(now)}, Queue: w.queue, Kind: w.kind, Horizon: w.ahead, Durability: q.Spec.Durability, Input: w.input, InputRun: w.run,
			Token: core.WriterToken{ID: core.NewID(now)}, Chain: chain,
		},
		Created: now, Wanted: q.Spec.Replicas, Home: q.Home,
	}
	if w.minority {
		r.Minority = h.maker()
	}
	return r, h.choose(ctx, &r.Extent, q.Spec, w.avoid)
}

// registerHead writes the rows of a new head, and takes it in. If that fails, the extent stays: it is there by its
// head, and another controller may have written its rows.
func (h *Host) registerHead(ctx context.Context, w wish, r metadata.ExtentRecord) (core.Extent, error) {
	now := h.deps.now()
	if err := h.writeNew(ctx, w, r, now); err != nil {
		return core.Extent{}, core.Errorf(core.CodeOf(err), "create extent %s: %w", r.ID, err)
	}
	h.register(w, r, now)
	return r.Extent, nil
}

// register takes a new extent in, which has its rows.
func (h *Host) register(w wish, r metadata.ExtentRecord, now time.Time) {
	made := catalog.Extent{ExtentRecord: r, State: core.ExtentOpen, Home: r.Home, Made: true}
	h.extents.Put(made)
	h.created(w.key(), r.ID, now)
	h.metrics.created.Inc()
	if w.minority {
		h.minority.made()
		return
	}
	h.shares.touch(made.Reader())
	h.tellOthers(made)
}

// writeNew writes the rows of a new extent side by side: no writer knows the extent before all are there. A lookup by
// the id of an extent finds the hint, so a majority has that, too.
func (h *Host) writeNew(ctx context.Context, w wish, r metadata.ExtentRecord, now time.Time) error {
	write := func(ctx context.Context, c metadata.Consistency) error {
		return sideBySide(func() error { return h.writeHint(ctx, metadata.HintLive, r, now, c) }, func() error { return h.writeRow(ctx, r, now, c) })
	}
	if w.minority {
		return write(ctx, metadata.One)
	}
	return h.withMajority(ctx, func(ctx context.Context) error { return write(ctx, metadata.Quorum) })
}
