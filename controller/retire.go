package controller

import (
	"context"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// retireEvery is how often deleted queues are looked for.
const retireEvery = 10 * time.Second

// retireDeleted removes the extents of deleted queues: sealed first, then retired in the seal row, which stays as a tombstone, then
// deleted by their stores. An answer of the metadata that is missing or failed deletes nothing.
func (h *Host) retireDeleted(ctx context.Context) {
	for _, queue := range h.extents.queues() {
		q, _, err := metadata.Read[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(queue), metadata.Serial)
		if err != nil || q.Spec.Status != core.StatusDeleted {
			continue
		}
		for _, e := range h.extents.of(queue) {
			h.look(e.ID, func(ctx context.Context) {
				if err := h.retire(ctx, e); err != nil && ctx.Err() == nil {
					h.log.Info("an extent of a deleted queue stays for now", "extent", e.ID, "queue", q.Spec.Path, "err", err)
				}
			})
		}
	}
}

func (h *Host) retire(ctx context.Context, e extent) error {
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	if !e.state.HasEnd() {
		if _, err := h.seal(ctx, e.Extent, 0, "queue deleted", false); err != nil {
			return err
		}
	}
	_, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), func(r *metadata.SealRecord) error {
		if r.State == core.ExtentRetired {
			return metadata.ErrNoChange
		}
		r.State, r.Changed = core.ExtentRetired, h.deps.now()
		return nil
	})
	if err != nil {
		return err
	}
	for _, store := range e.Replicas {
		if err := h.removeReplica(ctx, e.ID, store); err != nil {
			return core.Errorf(core.CodeOf(err), "remove the replica on %s: %w", store, err)
		}
	}
	now := h.deps.now()
	for _, partition := range []string{metadata.PartitionOpen, metadata.PartitionLive} {
		if err := h.deps.Meta.Remove(ctx, metadata.Work, metadata.WorkKey(partition, e.ID), now, metadata.One); err != nil {
			return err
		}
	}
	if err := h.deps.Meta.Remove(ctx, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), now, metadata.One); err != nil {
		return err
	}
	h.extents.remove(e.ID)
	h.metrics.retired.Inc()
	return nil
}

func (h *Host) removeReplica(ctx context.Context, id core.ExtentID, store core.HostID) error {
	addr := h.address("storehost", store)
	if addr == "" {
		return core.Errorf(core.CodeUnavailable, "store %s is not there", store)
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	_, err := h.deps.Peers.Store(addr).Remove(ctx, connect.NewRequest(&pb.RemoveRequest{Extent: id.ID[:]}))
	if err = convert.FromRPC(err); core.CodeOf(err) == core.CodeNotFound {
		return nil
	}
	return err
}
