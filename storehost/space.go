package storehost

import (
	"bytes"
	"context"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
)

// maxInventory bounds one answer, about a MiB; the rest is asked for from its position.
const maxInventory = 4096

// inventory is what changed since a position that an answer of the same run gave, or all replicas of some buckets,
// which go on after such a position.
func (h *Host) inventory(run []byte, since uint64, buckets []uint32, after uint64) (core.StoreIdentity, extentlog.Inventory, error) {
	log, err := h.extents()
	if err != nil {
		return core.StoreIdentity{}, extentlog.Inventory{}, err
	}
	for _, b := range buckets {
		if b >= core.InventoryBuckets {
			return core.StoreIdentity{}, extentlog.Inventory{}, core.Errorf(core.CodeBadArgument, "bucket %d is not one of %d", b, core.InventoryBuckets)
		}
	}
	is := log.Identity()
	q := extentlog.InventoryQuery{After: since, Most: maxInventory}
	if len(buckets) > 0 {
		q.After, q.Buckets = after, buckets
	}
	if !bytes.Equal(run, is.Run.ID[:]) {
		q.After = 0
	}
	return is, log.Inventory(q), nil
}

// remove forgets an extent and gives its space back, once a controller has confirmed it, unless a newer version of its
// holders is known: a row may change after it was confirmed. An extent that is not here is gone already.
func (h *Host) remove(ctx context.Context, id core.ExtentID, version uint64) error {
	log, err := h.extents()
	if err != nil {
		return err
	}
	is := log.Identity()
	if err := h.confirming.do(ctx, func(ctx context.Context, c Confirmer) error { return c.ConfirmRemoval(ctx, id, version, is) }); err != nil {
		return core.Errorf(core.CodeOf(err), "the replica stays: %w", err)
	}
	if err := log.Remove(id, version); err != nil {
		return err
	}
	h.metrics.removed.Inc()
	return nil
}
