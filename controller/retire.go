package controller

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// retireEvery is how often deleted queues are looked for.
const retireEvery = 10 * time.Second

// doneFor is how long it stays known that a group is past an extent that was removed: lists of shares and tokens of before may still be about.
const doneFor = 24 * time.Hour

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
		_, err := h.seal(ctx, order{extent: e.Extent, reason: "queue deleted"})
		if err != nil && e.state == core.ExtentOpen {
			return err // the next round does without its end: stores that have it may never be back, and nobody needs it
		}
	}
	row, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), func(r *metadata.SealRecord) error {
		if r.State == core.ExtentRetired {
			return metadata.ErrNoChange
		}
		r.State, r.Version, r.Changed = core.ExtentRetired, r.Version+1, h.deps.now()
		return nil
	})
	if err != nil {
		return err
	}
	return h.removeRetired(ctx, e, row)
}

// removeRetired has the stores delete an extent, removes its hints and its create row, and forgets it.
func (h *Host) removeRetired(ctx context.Context, e extent, row metadata.SealRecord) error {
	for _, store := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(e.Replicas, row.Holders)))) {
		if !h.stores.answers(store) {
			continue // its inventory will show what it still has, and the row stays
		}
		if err := h.removeReplica(ctx, row, holder{store: store}); err != nil {
			return core.Errorf(core.CodeOf(err), "remove the replica on %s: %w", store, err)
		}
	}
	now := h.deps.now()
	if err := h.deps.Meta.Remove(ctx, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), now, metadata.One); err != nil {
		return err
	}
	for _, partition := range []string{metadata.PartitionOpen, metadata.PartitionLive} { // the hint by which all this is found again goes last
		if err := h.deps.Meta.Remove(ctx, metadata.Work, metadata.WorkKey(partition, e.ID), now, metadata.One); err != nil {
			return err
		}
	}
	h.extents.remove(e.ID)
	h.shares.touch(e.Queue)
	h.metrics.retired.Inc()
	return nil
}

// removeDrained removes an extent that retention has retired, with what is kept of its groups' progress.
func (h *Host) removeDrained(ctx context.Context, e extent) {
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
	if err == nil && row.State != core.ExtentRetired {
		err = core.Errorf(core.CodeConflict, "its row says %s", row.State)
	}
	if err == nil {
		err = h.forgetProgress(ctx, row)
	}
	if err == nil {
		err = h.removeRetired(ctx, e, row)
	}
	if err != nil && ctx.Err() == nil {
		h.log.Info("a retired extent stays for now", "extent", e.ID, "err", err)
	}
}

// forgetProgress removes the checkpoints of a retired extent, and has its done rows expire.
func (h *Host) forgetProgress(ctx context.Context, row metadata.SealRecord) error {
	id := row.Extent.ID
	for g, err := range metadata.All[metadata.GroupRecord](ctx, h.deps.Meta, metadata.Groups, row.Extent.Queue.String(), metadata.Quorum) {
		if err != nil {
			return err
		}
		rows, err := h.checkpoints(ctx, g.Value.ID, id)
		if err != nil {
			return err
		}
		for _, c := range rows {
			if err := h.deps.Meta.Remove(ctx, metadata.Checkpoints, c.Key, later(h.deps.now(), c.Written), metadata.Quorum); err != nil {
				return err
			}
		}
		key, at := metadata.DoneKey(g.Value.ID, id), h.deps.now()
		switch old, err := h.deps.Meta.Get(ctx, metadata.Dones, key, metadata.Quorum); {
		case err == nil:
			at = later(at, old.Written)
		case core.CodeOf(err) != core.CodeNotFound:
			return err
		}
		done := metadata.DoneRecord{L: row.L, Epoch: g.Value.Epoch}
		if err := metadata.Write(ctx, h.deps.Meta, metadata.Dones, key, done, at, doneFor, metadata.Quorum); err != nil {
			return err
		}
	}
	return nil
}

// later is now, or the first instant after that of a row: what is written then wins, whatever clock wrote the row.
func later(now, written time.Time) time.Time {
	if least := written.Add(metadata.Tick); now.Before(least) {
		return least
	}
	return now
}

// removeReplica deletes a replica by the version of the row that decided it; the store refuses one that is older than it knows.
func (h *Host) removeReplica(ctx context.Context, row metadata.SealRecord, from holder) error {
	store, err := h.storeAt(from.store)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	_, err = store.Remove(ctx, connect.NewRequest(&pb.RemoveRequest{
		Extent: row.Extent.ID.ID[:], Version: row.Version, Expected: expect(from.store, from.disk),
	}))
	if err = convert.FromRPC(err); core.CodeOf(err) == core.CodeNotFound {
		return nil
	}
	return err
}
