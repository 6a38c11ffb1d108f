package controller

import (
	"context"
	"sync/atomic"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// previewRewind counts the messages that a group would get after rewindGroup, as of now. Cancelled and expired messages
// are counted, too: only a read of all messages would tell. It reads metadata and stores, and writes nothing.
func (h *Host) previewRewind(ctx context.Context, queue core.QueueID, name string, id core.GroupID, to core.Start) (*pb.SeekPreview, error) {
	ctx, cancel := context.WithTimeout(ctx, rewindTimeout)
	defer cancel()
	g, _, err := metadata.Read[metadata.GroupRecord](ctx, h.deps.Meta, metadata.Groups, metadata.GroupKey(queue, name), metadata.Serial)
	if err == nil && (g.ID != id || !g.Started || g.Spec.Status == core.StatusDeleted) {
		err = core.Errorf(core.CodeNotFound, "group %s is not there", name)
	}
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "preview the rewind of group %s: %w", name, err)
	}
	extents, err := h.known(ctx, queue)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "preview the rewind of group %s: %w", name, err)
	}
	var messages atomic.Uint64
	var parts atomic.Uint32
	if err := inEach(ctx, extents, func(ctx context.Context, e catalog.Extent) error {
		if e.Leaving() || to.Mode == core.StartLatest {
			return nil
		}
		n, err := h.previewIn(ctx, g, to, e)
		if n > 0 {
			messages.Add(n)
			parts.Add(1)
		}
		return err
	}); err != nil {
		return nil, core.Errorf(core.CodeOf(err), "preview the rewind of group %s in %w", name, err)
	}
	return &pb.SeekPreview{Messages: messages.Load(), Extents: parts.Load()}, nil
}

// previewIn counts the messages of one extent.
func (h *Host) previewIn(ctx context.Context, g metadata.GroupRecord, to core.Start, e catalog.Extent) (n uint64, err error) {
	latest, next := g, g
	latest.Spec.Start, next.Spec.Start = core.Start{Mode: core.StartLatest}, to
	last, err := h.before(ctx, latest, e)
	if err != nil {
		return 0, err
	}
	if e.LostFrom > 0 {
		last = min(last, e.LostFrom-1)
	}
	var before core.Seq
	if to.Mode == core.StartTime {
		if before, err = h.before(ctx, next, e); err != nil {
			return 0, err
		}
	}
	before = min(before, last)
	n = uint64(last-before) - min(e.Removed, uint64(last-before))
	if e.Kind == core.KindTimer && before > 0 { // see carryTimers
		left, err := progress.Unsettled(ctx, h.deps.Meta, g, e.Extent, e.L, before)
		if err != nil {
			return 0, err
		}
		n += left
	}
	return n, nil
}
