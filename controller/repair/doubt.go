package repair

import (
	"context"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// lookTimeout bounds one look at a replica that an inventory says something of.
const lookTimeout = 20 * time.Second

// Doubt asks a holder itself, and takes it out of the holders when it does not have what it should. If another
// controller has retired the extent, the holders have removed it, and this controller learns that from the row.
func (r *Runner) Doubt(ctx context.Context, id core.ExtentID, at core.Place) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	row, _, err := metadata.Read[metadata.SealRecord](ctx, r.cfg.Meta, metadata.Seals, metadata.SealKey(id), metadata.Serial)
	if err != nil {
		return
	}
	r.cfg.Extents.Took(row)
	if row.State == core.ExtentRetired || !slices.Contains(row.Holders, at.Store) {
		return
	}
	r.verified(ctx, row, at)
}

// verified reports whether a holder has what it should. One that says itself that it does not is taken out of the
// holders.
func (r *Runner) verified(ctx context.Context, row metadata.SealRecord, at core.Place) bool {
	err := r.replicas.Verify(ctx, row, at)
	switch core.CodeOf(err) {
	case core.CodeCorrupt, core.CodeNotFound:
		r.Quarantine(ctx, row.Extent.ID, at.Store, err.Error())
	}
	return err == nil
}

// RemoveSurplus gives up what a store has that is no holder, once all the copies that are wanted were looked at. It
// acts on what it sees of those: inventories of several stores come at the same time, and of the looks at an extent
// that they ask for only the first one is made.
func (r *Runner) RemoveSurplus(ctx context.Context, id core.ExtentID, from core.Place) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	row, _, err := metadata.Read[metadata.SealRecord](ctx, r.cfg.Meta, metadata.Seals, metadata.SealKey(id), metadata.Serial)
	if err != nil {
		return
	}
	r.cfg.Extents.Took(row)
	e, ok := r.cfg.Extents.Get(id)
	if !ok || row.State != core.ExtentSealed || row.LostFrom > 0 {
		return
	}
	good := 0
	for _, x := range row.Places() {
		if x != from && r.verified(ctx, row, x) {
			good++
		}
	}
	if good < e.Copies() {
		r.Want(id)
		return
	}
	if row, err = r.decideRemoval(ctx, row, from); err == nil {
		err = r.replicas.Remove(ctx, row, from)
	}
	if err != nil {
		r.cfg.Log.Info("a superfluous replica stays for now", "extent", id, "store", from.Store, "err", err)
		return
	}
	r.cfg.Log.Info("a superfluous replica is removed", "extent", id, "store", from.Store, "holders", row.Holders)
}
