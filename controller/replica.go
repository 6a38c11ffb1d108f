package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
	"github.com/columbamq/columba/metadata"
)

// targetTimeout is how long a store may take to answer the fence before a copy.
const targetTimeout = time.Second

// copyTo makes the target's replica complete, as far as it is not, and answers the row it did that by. What it has of another content is
// cleared away before. Without a source, which is zero then, only a replica that is complete already will do.
func (h *Host) copyTo(ctx context.Context, row metadata.SealRecord, source core.Place, target store, pace func(context.Context, int) error) (metadata.SealRecord, error) {
	at := target.place()
	a, useless, err := h.assess(ctx, row, source, at)
	if err != nil {
		return row, err
	}
	if useless {
		if row, err = h.removeUseless(ctx, row, source, at); err != nil {
			return row, err
		}
		if a, useless, err = h.assess(ctx, row, source, at); err != nil {
			return row, err
		}
	}
	switch {
	case useless:
		return row, core.Errorf(core.CodeConflict, "store %s cannot be believed about it", at.Store)
	case a.Last < row.L && source.Store == "":
		return row, core.Errorf(core.CodeIncomplete, "store %s has it up to seq %d, and it ends at %d", at.Store, a.Last, row.L)
	case a.Last < row.L:
		if err := h.copyTail(ctx, row.Extent.ID, tail{source, at, a.Last + 1, row.L}, pace); err != nil {
			var broken sourceError
			if errors.As(err, &broken) && core.CodeOf(err) == core.CodeCorrupt {
				h.quarantine(ctx, row.Extent.ID, source.Store, "it cannot be read")
			}
			return row, err
		}
	}
	return row, h.sealReplica(ctx, row, at, row.Version+1)
}

// assess fences a replica that is no holder and looks at what it has. A useless one is damaged, or differs from the extent as far as it
// goes; one that contradicts its end is an alarm, and stays as it is: it may have what was acknowledged and is nowhere else. What lies beyond an end that an operator
// accepted is useless, too.
func (h *Host) assess(ctx context.Context, row metadata.SealRecord, source, at core.Place) (a core.FenceAnswer, useless bool, err error) {
	fctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	a, err = h.fenceOne(fctx, row.Extent, at.Store, at.Disk, row.Version+1)
	switch {
	case err != nil:
		return a, false, err
	case a.Identity.Disk != at.Disk:
		return a, false, core.Errorf(core.CodeConflict, "store %s has another disk by now", at.Store)
	case a.Committed > row.L && !row.Forced:
		h.metrics.alarms.WithLabelValues(string(seal.AlarmBelowFloor)).Inc()
		return a, false, core.Errorf(core.CodeConflict, "store %s knows seq %d as committed, the row ends at %d: what it has is kept; look at it", at.Store, a.Committed, row.L)
	case a.Health == core.HealthSuspect, a.Committed > row.L:
		return a, true, nil
	case a.Sealed && a.L != row.L:
		h.metrics.alarms.WithLabelValues(string(seal.AlarmTwoEnds)).Inc()
		return a, false, core.Errorf(core.CodeCorrupt, "store %s persisted the end %d, the row says %d", at.Store, a.L, row.L)
	}
	useless, err = h.differs(ctx, row, source, at, a)
	return a, useless, err
}

// differs reports whether a replica's batches are others than the extent's, as far as both go: rolling checksums are of all before.
func (h *Host) differs(ctx context.Context, row metadata.SealRecord, source, at core.Place, a core.FenceAnswer) (bool, error) {
	id := row.Extent.ID
	switch {
	case a.Last == row.L:
		return a.Checksum != row.Checksum, nil
	case a.Last > row.L:
		sum, whole, err := h.checksumAt(ctx, id, at, row.L)
		return err == nil && (!whole || sum != row.Checksum), err
	case a.Last == 0, source.Store == "":
		return false, nil
	}
	sum, whole, err := h.checksumAt(ctx, id, source, a.Last)
	if err != nil {
		return false, sourceError{err}
	}
	return !whole || sum != a.Checksum, nil
}

// removeUseless clears away a replica that is no copy, once a good one was looked at.
func (h *Host) removeUseless(ctx context.Context, row metadata.SealRecord, source, from core.Place) (metadata.SealRecord, error) {
	if source.Store == "" {
		return row, core.Errorf(core.CodeCorrupt, "store %s does not have what the row says", from.Store)
	}
	if err := h.verify(ctx, row, source); err != nil {
		return row, sourceError{err}
	}
	row, err := h.decideRemoval(ctx, row, from)
	if err != nil {
		return row, err
	}
	h.log.Warn("a replica that is damaged or of another content is cleared away", "extent", row.Extent.ID, "store", from.Store)
	return row, h.removeReplica(ctx, row, from)
}

// decideRemoval makes the version of the holders new, by which a store that is none of them gives up what it has: a store refuses what
// was decided before it heard of a newer one.
func (h *Host) decideRemoval(ctx context.Context, row metadata.SealRecord, from core.Place) (metadata.SealRecord, error) {
	next, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(row.Extent.ID), func(r *metadata.SealRecord) error {
		if r.State != core.ExtentSealed || r.Version != row.Version || slices.ContainsFunc(r.Places(), from.Same) {
			return errMoved
		}
		r.Version, r.Changed = r.Version+1, h.deps.now()
		return nil
	})
	if err == nil {
		h.extents.took(next)
	}
	return next, err
}

// replicaAt is what a store says about a replica on one of its disks.
func (h *Host) replicaAt(ctx context.Context, id core.ExtentID, at core.Place) (*pb.Replica, error) {
	store, err := h.storeAt(at.Store)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	resp, err := store.GetReplica(ctx, connect.NewRequest(&pb.GetReplicaRequest{Extent: id.ID[:], Expected: expect(at.Store, at.Disk)}))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	return resp.Msg, nil
}

// verify looks whether a holder has what the row says.
func (h *Host) verify(ctx context.Context, row metadata.SealRecord, at core.Place) error {
	r, err := h.replicaAt(ctx, row.Extent.ID, at)
	if err != nil {
		return err
	}
	last := core.Seq(r.Last)
	if r.Damaged || last < row.L || r.Sealed && core.Seq(r.L) != row.L || last == row.L && r.Checksum != row.Checksum {
		return core.Errorf(core.CodeCorrupt, "store %s does not hold extent %s as the row says", at.Store, row.Extent.ID)
	}
	return nil
}
