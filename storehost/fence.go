package storehost

import (
	"context"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
)

// checkIdentity refuses a call that is meant for another store or another disk. Empty fields mean any.
func (h *Host) checkIdentity(expected *pb.StoreIdentity) error {
	log, err := h.extents()
	if err != nil {
		return err
	}
	want, err := convert.Identity(expected)
	if err != nil {
		return err
	}
	is := log.Identity()
	switch {
	case want.Store != "" && want.Store != is.Store:
		return core.Errorf(core.CodeConflict, "this is store %s, not %s; look up its address again", is.Store, want.Store)
	case !want.Disk.IsZero() && want.Disk != is.Disk:
		return otherDisk(is, want.Disk)
	}
	return nil
}

func otherDisk(is core.StoreIdentity, want core.DiskID) error {
	return core.Errorf(core.CodeConflict, "store %s has disk %s, not %s: its directory was replaced", is.Store, is.Disk, want)
}

// fence stops appends for ever and grades what this replica says about itself. The store need not be one of the
// extent's replicas: that is how one that is to get a copy hears of it. version is of the holders then, see
// extentlog.Log.
func (h *Host) fence(extent core.Extent, expected core.StoreIdentity, version uint64) (core.FenceAnswer, error) {
	log, err := h.extents()
	if err != nil {
		return core.FenceAnswer{}, err
	}
	is := log.Identity()
	if expected.Store != "" && expected.Store != is.Store {
		return core.FenceAnswer{}, core.Errorf(core.CodeConflict, "this is store %s, not %s; look up its address again", is.Store, expected.Store)
	}
	state, err := log.Fence(extent, version)
	if err != nil {
		return core.FenceAnswer{}, err
	}
	h.metrics.fences.Inc()
	return grade(is, expected, state), nil
}

// grade makes a fence's answer. A suspect one of another disk carries no length. One of a damaged replica does: no
// decision counts on it, but an extent that has nothing else ends there.
func grade(is, expected core.StoreIdentity, s extentlog.State) core.FenceAnswer {
	a := core.FenceAnswer{
		Identity: is, Health: core.HealthOK, Absent: !s.Opened && s.Last == 0,
		Last: s.Last, Committed: s.Committed, Checksum: s.Checksum, Bytes: s.Bytes, Sealed: s.Sealed, L: s.L,
	}
	otherDisk := !expected.Disk.IsZero() && expected.Disk != is.Disk
	switch {
	case otherDisk:
		a.Health, a.Last, a.Checksum, a.Bytes = core.HealthSuspect, 0, 0, 0
	case s.Damaged, s.Committed > s.Last && !(s.Sealed && s.Committed <= s.L):
		a.Health = core.HealthSuspect
	case !s.Opened, s.Header.Run != is.Run:
		a.Health = core.HealthWeak
	}
	return a
}

// seal takes over the decided end of an extent, fencing it first if this store had not heard of the fence. A controller
// has to confirm an end that is not the replica's own.
func (h *Host) seal(ctx context.Context, extent core.Extent, l core.Seq, checksum uint32, version uint64) error {
	log, err := h.extents()
	if err != nil {
		return err
	}
	state, err := log.State(extent.ID)
	if err != nil && core.CodeOf(err) != core.CodeNotFound {
		return err
	}
	if err != nil || !state.Fenced {
		if state, err = log.Fence(extent, version); err != nil {
			return err
		}
	}
	if !evident(state, l, checksum, version) {
		err := h.confirming.do(ctx, func(ctx context.Context, c Confirmer) error {
			return c.ConfirmEnd(ctx, extent.ID, l, checksum, version)
		})
		if err != nil {
			return core.Errorf(core.CodeOf(err), "the replica does not take over the end %d: %w", l, err)
		}
	}
	if err := log.Seal(extent.ID, l, checksum, version); err != nil {
		return err
	}
	h.metrics.seals.Inc()
	return nil
}
