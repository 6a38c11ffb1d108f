package controller

import (
	"context"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// startGroup fixes where a new group begins in each extent there is; later extents start at 1. What lies before the start is
// recorded like an owner's checkpoint, by an owner that never was. Repeating it changes nothing.
func (h *Host) startGroup(ctx context.Context, queue core.QueueID, name string) error {
	g, _, err := metadata.Read[metadata.GroupRecord](ctx, h.deps.Meta, metadata.Groups, metadata.GroupKey(queue, name), metadata.Serial)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "start group %s: %w", name, err)
	}
	if g.Started { // asked again: moving its start now would skip messages
		h.shares.touch(queue)
		return nil
	}
	leaving, err := h.leaving(ctx, queue)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "start group %s: %w", name, err)
	}
	for _, e := range h.extents.of(queue) {
		if err := h.startIn(ctx, g, e, leaving[e.ID]); err != nil {
			return core.Errorf(core.CodeOf(err), "start group %s in extent %s: %w", name, e.ID, err)
		}
	}
	if _, err := metadata.Change(ctx, h.deps.Meta, metadata.Groups, metadata.GroupKey(queue, name), func(r *metadata.GroupRecord) error {
		if r.ID != g.ID || r.Spec.Status == core.StatusDeleted {
			return core.Errorf(core.CodeNotFound, "the group was deleted meanwhile")
		}
		r.Started = true
		return nil
	}); err != nil {
		return core.Errorf(core.CodeOf(err), "start group %s: %w", name, err)
	}
	h.shares.touch(queue)
	return nil
}

// leaving are the extents of a queue that are being retired: a group that is made meanwhile gets nothing of them. They are read after the
// group's row was written, and retention reads the groups after its mark: one of them meets the other, and no group gets a part.
func (h *Host) leaving(ctx context.Context, queue core.QueueID) (map[core.ExtentID]bool, error) {
	const page = 500
	var keys []metadata.Key
	for _, e := range h.extents.of(queue) {
		keys = append(keys, metadata.SealKey(e.ID))
	}
	out := make(map[core.ExtentID]bool)
	for some := range slices.Chunk(keys, page) {
		rows, err := metadata.GetRows(ctx, h.deps.Meta, metadata.Seals, some, metadata.Serial)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			r, err := metadata.Decode[metadata.SealRecord](metadata.Seals, row)
			if err != nil {
				return nil, err
			}
			h.extents.took(r)
			if r.State == core.ExtentRetiring || r.State == core.ExtentRetired {
				out[r.Extent.ID] = true
			}
		}
	}
	return out, nil
}

// startIn fixes where the group begins in an extent.
func (h *Host) startIn(ctx context.Context, g metadata.GroupRecord, e extent, leaving bool) error {
	switch {
	case leaving:
		return h.writeStart(ctx, g, e, e.l)
	case g.Spec.Start.Mode == core.StartEarliest:
		return nil
	}
	before, err := h.before(ctx, g, e)
	if err != nil {
		return err
	}
	return h.writeStart(ctx, g, e, before)
}

// before is the last seq that the group does not get.
func (h *Host) before(ctx context.Context, g metadata.GroupRecord, e extent) (core.Seq, error) {
	if g.Spec.Start.Mode == core.StartLatest && e.state.HasEnd() {
		return e.l, nil
	}
	var err error
	ask := e.Replicas
	if e.state.HasEnd() {
		ask = nil
		for _, x := range e.holders {
			ask = append(ask, x.store)
		}
	}
	for _, id := range ask {
		var store columbav1connect.StoreServiceClient
		if store, err = h.storeAt(id); err != nil {
			continue
		}
		cctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
		var seq core.Seq
		seq, err = askBefore(cctx, store, g, e)
		cancel()
		if err == nil {
			return seq, nil
		}
	}
	return 0, err
}

func askBefore(ctx context.Context, store columbav1connect.StoreServiceClient, g metadata.GroupRecord, e extent) (core.Seq, error) {
	if g.Spec.Start.Mode == core.StartTime {
		resp, err := store.Seek(ctx, connect.NewRequest(&pb.SeekRequest{Extent: e.ID.ID[:], Time: timestamppb.New(g.Spec.Start.At)}))
		switch err := convert.FromRPC(err); {
		case core.CodeOf(err) == core.CodeNotFound: // created, never opened
			return 0, nil
		case err != nil:
			return 0, err
		}
		return core.Seq(max(resp.Msg.Seq, 1)) - 1, nil
	}
	resp, err := store.GetReplica(ctx, connect.NewRequest(&pb.GetReplicaRequest{Extent: e.ID.ID[:]}))
	switch err := convert.FromRPC(err); {
	case core.CodeOf(err) == core.CodeNotFound:
		return 0, nil
	case err != nil:
		return 0, err
	}
	// Not the committed seq: that reaches stores after publishers have their acknowledgements, and what was acknowledged before the
	// group was made is not for it. What is durable here and not acknowledged yet is published at the same time: either side is right.
	return core.Seq(max(resp.Msg.Last, resp.Msg.Committed)), nil
}

// writeStart records that everything up to before is not for the group.
func (h *Host) writeStart(ctx context.Context, g metadata.GroupRecord, e extent, before core.Seq) error {
	if before == 0 {
		return nil
	}
	now := h.deps.now()
	if e.state.HasEnd() && before >= e.l {
		return metadata.Write(ctx, h.deps.Meta, metadata.Dones, metadata.DoneKey(g.ID, e.ID), metadata.DoneRecord{L: e.l, Epoch: g.Epoch}, now, 0, metadata.Quorum)
	}
	key := metadata.CheckpointKey(g.ID, e.ID, g.Epoch, core.RunID{})
	state := dispatch.StartAfter(before)
	return h.deps.Meta.Put(ctx, metadata.Checkpoints, key, state.Append(nil), now, 0, metadata.Quorum)
}
