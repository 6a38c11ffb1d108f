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

const (
	// urgentTries is how many stores are tried in turn for a copy that somebody may wait for, or that one store has refused.
	urgentTries = 3
	// targetTimeout is how long a store may take to answer the fence before a copy.
	targetTimeout = time.Second
)

// errMoved: somebody else changed the holders meanwhile.
var errMoved = errors.New("the holders changed meanwhile")

// repair makes the one copy that an extent lacks, or drops the one it has too many:
//
//	row ──▶ fence the target ──▶ copy from a holder ──▶ seal there at version + 1, fsynced ──▶ CAS: holder added, version + 1
//
// In a hurry it does so only below the minimum, else errNotUrgent.
func (h *Host) repair(ctx context.Context, id core.ExtentID, hurry bool) error {
	row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(id), metadata.Serial)
	if err != nil {
		return err
	}
	h.extents.took(row)
	e, ok := h.extents.get(id)
	if !ok || row.State != core.ExtentSealed {
		return nil
	}
	known := h.storeView()
	switch j := h.judge(e, known, h.deps.now()); {
	case j.Repair && hurry && !j.Below:
		return errNotUrgent
	case j.Repair:
		return h.addCopy(ctx, e, row, known, j.Below)
	case j.Surplus > 0:
		return h.dropSurplus(ctx, e, row, known)
	}
	return nil
}

func (h *Host) addCopy(ctx context.Context, e extent, row metadata.SealRecord, known map[core.HostID]store, urgent bool) error {
	targets := h.targets(e, known)
	if len(targets) == 0 {
		return nil // nowhere to put it: a store that comes wakes the sweep
	}
	source, ok := firstAnswering(e, known)
	if !ok {
		return core.Errorf(core.CodeUnavailable, "no store that holds it answers")
	}
	pace, tries := h.pace.wait, 1
	if urgent || h.repairs.failing(e.ID) { // if one store does not take it, the next one may
		tries = urgentTries
	}
	if urgent { // somebody may wait for it
		pace = nil
	}
	var target store
	var err error
	for _, id := range targets[:min(tries, len(targets))] {
		target = known[id]
		if row, err = h.copyTo(ctx, row, source, target, pace); err == nil {
			break
		}
		err = core.Errorf(core.CodeOf(err), "copy it from %s to %s: %w", source, target.ID, err)
	}
	if err != nil {
		return err
	}
	row, err = h.addHolder(ctx, row, holder{target.ID, target.identity.Disk}, known)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "record its copy on %s: %w", target.ID, err)
	}
	h.extents.took(row)
	h.shares.touchHolders(row.Extent)
	h.metrics.repaired.Inc()
	if e, ok := h.extents.get(e.ID); ok && e.told {
		h.finished(ctx, row)
	}
	h.log.Info("an extent has a copy more", "extent", e.ID, "store", target.ID, "holders", row.Holders)
	h.repairs.add(e.ID, urgent) // it may lack another
	return nil
}

func firstAnswering(e extent, known map[core.HostID]store) (core.HostID, bool) {
	for _, x := range e.holders {
		if st := known[x.store]; st.answering() && !contradicts(x, known) {
			return x.store, true
		}
	}
	return "", false
}

// copyTo makes the target's replica complete, as far as it is not, and answers the row it did that by.
func (h *Host) copyTo(ctx context.Context, row metadata.SealRecord, source core.HostID, target store, pace func(context.Context, int) error) (metadata.SealRecord, error) {
	at := holder{target.ID, target.identity.Disk}
	fctx, cancel := context.WithTimeout(ctx, targetTimeout)
	a, err := h.fenceOne(fctx, row.Extent, at.store, at.disk, row.Version+1)
	cancel()
	if err != nil {
		return row, err
	}
	if a.Health == core.HealthSuspect && a.Identity.Disk == at.disk { // what is there is of no use
		if row, err = h.removeUseless(ctx, row, source, at); err != nil {
			return row, err
		}
		if a, err = h.fenceOne(ctx, row.Extent, at.store, at.disk, row.Version+1); err != nil {
			return row, err
		}
	}
	if a.Health == core.HealthSuspect || a.Identity.Disk != at.disk {
		return row, core.Errorf(core.CodeConflict, "store %s cannot be believed about it", at.store)
	}
	if a.Sealed && a.L != row.L {
		h.metrics.alarms.WithLabelValues(string(seal.AlarmTwoEnds)).Inc()
		return row, core.Errorf(core.CodeCorrupt, "store %s persisted the end %d, the row says %d", at.store, a.L, row.L)
	}
	if a.Last < row.L {
		c := seal.Copy{From: source, To: at.store, First: a.Last + 1, Last: row.L}
		if err := h.copyTail(ctx, row.Extent.ID, c, at.disk, pace); err != nil {
			var broken sourceError
			if errors.As(err, &broken) && core.CodeOf(err) == core.CodeCorrupt {
				h.quarantine(ctx, row.Extent.ID, source, "it cannot be read")
			}
			return row, err
		}
	}
	return row, h.sealReplica(ctx, row, at, row.Version+1)
}

// removeUseless clears away a damaged replica that is no copy, once a good one was looked at.
func (h *Host) removeUseless(ctx context.Context, row metadata.SealRecord, source core.HostID, from holder) (metadata.SealRecord, error) {
	if err := h.verify(ctx, row, source); err != nil {
		return row, err
	}
	row, err := h.decideRemoval(ctx, row, from.store)
	if err != nil {
		return row, err
	}
	return row, h.removeReplica(ctx, row, from)
}

// decideRemoval makes the version of the holders new, by which a store that is none of them gives up what it has: a store refuses what
// was decided before it heard of a newer one.
func (h *Host) decideRemoval(ctx context.Context, row metadata.SealRecord, from core.HostID) (metadata.SealRecord, error) {
	next, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(row.Extent.ID), func(r *metadata.SealRecord) error {
		if r.State != core.ExtentSealed || r.Version != row.Version || slices.Contains(r.Holders, from) {
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

// addHolder records a copy that is complete on its store. Holders whose disks are gone make room.
func (h *Host) addHolder(ctx context.Context, row metadata.SealRecord, add holder, known map[core.HostID]store) (metadata.SealRecord, error) {
	for {
		next, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(row.Extent.ID), func(r *metadata.SealRecord) error {
			if r.State != core.ExtentSealed {
				return metadata.ErrNoChange
			}
			if r.Version != row.Version {
				return errMoved
			}
			holders := slices.DeleteFunc(holdersOf(*r), func(x holder) bool { return x.store == add.store || contradicts(x, known) })
			setHolders(r, append(holders, add))
			r.Version, r.Changed = r.Version+1, h.deps.now()
			return nil
		})
		if !errors.Is(err, errMoved) {
			return next, err
		}
		// The store must know the version that adds it, before a deletion that an older one decided.
		row = next
		if err := h.sealReplica(ctx, row, add, row.Version+1); err != nil {
			return row, err
		}
	}
}

// quarantine takes a store that is damaged out of the holders; the last one stays: something may still be read from it.
func (h *Host) quarantine(ctx context.Context, id core.ExtentID, from core.HostID, why string) {
	dropped := false
	row, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(id), func(r *metadata.SealRecord) error {
		holders := holdersOf(*r)
		left := slices.DeleteFunc(slices.Clone(holders), func(x holder) bool { return x.store == from })
		dropped = r.State.HasEnd() && len(left) > 0 && len(left) < len(holders)
		if !dropped {
			return metadata.ErrNoChange
		}
		setHolders(r, left)
		r.Version, r.Changed = r.Version+1, h.deps.now()
		return nil
	})
	if err != nil {
		h.log.Warn("a damaged replica could not be quarantined yet", "extent", id, "store", from, "err", err)
		return
	}
	h.extents.took(row)
	h.log.Error("a replica is damaged", "extent", id, "store", from, "why", why, "dropped", dropped, "holders", row.Holders)
	if dropped {
		h.metrics.quarantined.Inc()
		h.shares.touchHolders(row.Extent)
	}
	h.repairs.want(id)
}

// dropSurplus gives up one copy of more than are wanted, after all were looked at.
func (h *Host) dropSurplus(ctx context.Context, e extent, row metadata.SealRecord, known map[core.HostID]store) error {
	verified := make([]holder, 0, len(e.holders))
	for _, x := range e.holders {
		if known[x.store].answering() && !contradicts(x, known) && h.verify(ctx, row, x.store) == nil {
			verified = append(verified, x)
		}
	}
	if len(verified) <= e.wanted() {
		return nil
	}
	drop := victim(e, verified, known)
	next, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), func(r *metadata.SealRecord) error {
		if r.State != core.ExtentSealed || r.Version != row.Version {
			return errMoved
		}
		setHolders(r, slices.DeleteFunc(holdersOf(*r), func(x holder) bool { return x.store == drop.store }))
		r.Version, r.Changed = r.Version+1, h.deps.now()
		return nil
	})
	if err != nil {
		return core.Errorf(core.CodeOf(err), "drop its copy on %s: %w", drop.store, err)
	}
	h.extents.took(next)
	h.shares.touchHolders(next.Extent)
	h.log.Info("an extent has a copy less: it had more than wanted", "extent", e.ID, "store", drop.store, "holders", next.Holders)
	return h.removeReplica(ctx, next, drop)
}

// victim is the copy whose loss hurts least: of the zone with the most of them, of a store that was not among the first replicas.
func victim(e extent, from []holder, known map[core.HostID]store) holder {
	zones := make(map[string]int)
	for _, x := range from {
		zones[known[x.store].Zone]++
	}
	return slices.MaxFunc(from, func(a, b holder) int {
		if d := zones[known[a.store].Zone] - zones[known[b.store].Zone]; d != 0 {
			return d
		}
		if d := boolInt(!isReplica(e, a.store)) - boolInt(!isReplica(e, b.store)); d != 0 {
			return d
		}
		return slices.Compare([]byte(a.store), []byte(b.store))
	})
}

// verify looks whether a holder has what the row says.
func (h *Host) verify(ctx context.Context, row metadata.SealRecord, id core.HostID) error {
	store, err := h.storeAt(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	resp, err := store.GetReplica(ctx, connect.NewRequest(&pb.GetReplicaRequest{Extent: row.Extent.ID.ID[:]}))
	if err != nil {
		return convert.FromRPC(err)
	}
	if r := resp.Msg; r.Damaged || core.Seq(r.Last) < row.L || r.Sealed && (core.Seq(r.L) != row.L || r.Checksum != row.Checksum) {
		return core.Errorf(core.CodeCorrupt, "store %s does not hold extent %s as the row says", id, row.Extent.ID)
	}
	return nil
}
