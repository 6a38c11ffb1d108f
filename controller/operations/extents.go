package operations

import (
	"context"
	"slices"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// known are the extents in which an operation may have to do.
func (r *Runner) known(ctx context.Context, o *metadata.OperationRecord) (map[core.ExtentID]metadata.ExtentRecord, error) {
	out := make(map[core.ExtentID]metadata.ExtentRecord)
	if o.Widened {
		if err := r.elsewhere(ctx, o.Object, out); err != nil {
			return nil, err
		}
	}
	return out, r.extents(ctx, o.Object, out)
}

// extents adds those of a queue: those the controller knows, and those that it has not heard of yet.
func (r *Runner) extents(ctx context.Context, queue core.QueueID, out map[core.ExtentID]metadata.ExtentRecord) error {
	for e, err := range metadata.ExtentRows(ctx, r.Meta, queue, metadata.Quorum) {
		if err == nil {
			err = e.Err()
		}
		if err != nil {
			return core.Errorf(core.CodeOf(err), "list the extents of queue %s: %w", queue, err)
		}
		out[e.Value.ID] = e.Value
	}
	for _, e := range r.Extents.Of(queue) {
		out[e.ID] = e.ExtentRecord
	}
	return nil
}

// elsewhere adds the extents of the queues that belong to the groups of a queue.
func (r *Runner) elsewhere(ctx context.Context, queue core.QueueID, out map[core.ExtentID]metadata.ExtentRecord) error {
	for g, err := range metadata.All[metadata.GroupRecord](ctx, r.Meta, metadata.Groups, queue.String(), metadata.Quorum) {
		if err != nil {
			return core.Errorf(core.CodeOf(err), "list the groups of queue %s: %w", queue, err)
		}
		for _, of := range []core.QueueID{g.Value.Retry, g.Value.DLQ} {
			if of.IsZero() {
				continue
			}
			if err := r.extents(ctx, of, out); err != nil {
				return err
			}
		}
	}
	return nil
}

// find fixes what an operation concerns: at first, or beyond that.
func (r *Runner) find(ctx context.Context, o *metadata.OperationRecord, extents map[core.ExtentID]metadata.ExtentRecord) error {
	o.Unreached = append(o.Unreached, r.Owner.Unreached()...)
	slices.Sort(o.Unreached)
	o.Unreached = slices.Compact(o.Unreached)
	if next(o) == widen {
		return r.widen(ctx, o, extents)
	}
	own, err := r.homed(ctx, extents, func(h core.Home) bool { return h.Kind == core.HomeOwn })
	if err == nil {
		covered(o, own)
	}
	return err
}

// widen adds to the purge of a queue what its groups alone read: messages of their retry queues, and dead letters that
// were merged into them. By then output hosts have left what was purged before, and park nothing of it any more; one
// that had its time and has not heard of it hands nothing out, and is named at the end.
func (r *Runner) widen(ctx context.Context, o *metadata.OperationRecord, extents map[core.ExtentID]metadata.ExtentRecord) error {
	if _, err := r.heard(ctx, *o); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := r.elsewhere(ctx, o.Object, extents); err != nil {
		return err
	}
	found, err := r.homed(ctx, extents, func(h core.Home) bool { return h.Kind == core.HomeMerged && h.Queue == o.Object })
	if err == nil {
		widened(o, found)
	}
	return err
}

// homed are the extents that have one of these homes and are not retired, oldest first.
func (r *Runner) homed(ctx context.Context, extents map[core.ExtentID]metadata.ExtentRecord, which func(core.Home) bool) ([]core.ExtentID, error) {
	const page = 500
	in := make(map[core.ExtentID]bool, len(extents))
	all := make([]core.ExtentID, 0, len(extents))
	for id, e := range extents {
		all, in[id] = append(all, id), which(e.Home)
	}
	slices.SortFunc(all, func(a, b core.ExtentID) int { return slices.Compare(a.ID[:], b.ID[:]) }) // by age
	for some := range slices.Chunk(all, page) {
		keys := make([]metadata.Key, len(some))
		for i, id := range some {
			keys[i] = metadata.SealKey(id)
		}
		rows, err := metadata.ReadRows[metadata.SealRecord](ctx, r.Meta, metadata.Seals, keys, metadata.Serial)
		if err != nil {
			return nil, core.Errorf(core.CodeOf(err), "look up the homes of the extents: %w", err)
		}
		for _, s := range rows {
			in[s.Extent.ID] = which(s.Home) && s.State != core.ExtentRetired
		}
	}
	return slices.DeleteFunc(all, func(id core.ExtentID) bool { return !in[id] }), nil
}
