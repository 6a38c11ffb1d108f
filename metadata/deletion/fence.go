package deletion

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// fenceTimeout bounds how long a deletion waits for the ends of the queue's extents.
	fenceTimeout = 3 * time.Second
	fencePage    = 500 // seal rows in one read
	sealsAtOnce  = 32
)

// fence seals the open extents of a queue that is marked deleted. When it returns nil, no message is acknowledged into
// the queue any more, whatever its input hosts know: an extent that is answered to one later is made by a controller
// that has read the mark.
func (d Deletion) fence(ctx context.Context, q metadata.QueueRecord) error {
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	open, damage, err := d.openExtents(ctx, q.ID)
	listed := err == nil
	if listed {
		err = d.sealAll(ctx, open)
	}
	if err == nil && damage == nil {
		return nil
	}
	return fenceError(q.Spec.Path, open, listed, damage, err)
}

// fenceError says what keeps the path of a deleted queue from being free: a damaged row, or extents that are open, if
// they could be listed.
func fenceError(path string, open []core.Extent, listed bool, damage, err error) error {
	const deleted = "queue %s is deleted, but messages can still be stored in it until "
	code := core.CodeUnavailable
	switch core.CodeOf(err) {
	case core.CodeNoMajority:
		code = core.CodeUnknown
	case core.CodeCorrupt:
		code = core.CodeCorrupt
	}
	switch {
	case err == nil:
		return core.Errorf(core.CodeCorrupt, deleted+"a row of the metadata that describes an extent can be decoded, so its path is not free yet; upgrade the hosts if a newer version wrote the row, otherwise restore it, and a controller goes on: %w", path, damage)
	case !listed:
		return core.Errorf(code, deleted+"its extents are sealed, and they cannot be listed, so its path is not free yet; a controller goes on with it: %v", path, err)
	}
	return core.Errorf(code, deleted+"its %d open extents are sealed, so its path is not free yet; a controller goes on with it, start the stores that are away (`columba list hosts`): %v", path, len(open), err)
}

// openExtents are the extents of a queue that have no end, as far as a copy of the metadata says that may be behind.
// damage is why an extent that may be open is not among them: its create row cannot be decoded, and it has neither a
// hint nor a seal row.
func (d Deletion) openExtents(ctx context.Context, queue core.QueueID) (open []core.Extent, damage, err error) {
	var page []core.Extent
	flush := func() error {
		keys := make([]metadata.Key, len(page))
		for i, e := range page {
			keys[i] = metadata.SealKey(e.ID)
		}
		seals, err := metadata.ReadRows[metadata.SealRecord](ctx, d.Meta, metadata.Seals, keys, metadata.One)
		if err != nil {
			return err
		}
		ended := make(map[core.ExtentID]bool, len(seals))
		for _, seal := range seals {
			if seal.State == core.ExtentRetired && seal.Ended.IsZero() {
				return core.Errorf(core.CodeUnavailable, "extent %s was given up before it was sealed, and its stores have not removed it yet", seal.Extent.ID)
			}
			ended[seal.Extent.ID] = seal.State.HasEnd()
		}
		for _, e := range page {
			if !ended[e.ID] {
				open = append(open, e)
			}
		}
		page = page[:0]
		return nil
	}
	for r, err := range metadata.ExtentRows(ctx, d.Meta, queue, metadata.Quorum) {
		if err != nil {
			return open, damage, err
		}
		if !r.Known() {
			damage = core.Errorf(core.CodeCorrupt, "create row %s: %w", r.Key.Row, r.Damage)
			continue
		}
		if page = append(page, r.Value.Extent); len(page) == fencePage {
			if err := flush(); err != nil {
				return open, damage, err
			}
		}
	}
	err = flush()
	return open, damage, err
}

// sealAll answers the first error.
func (d Deletion) sealAll(ctx context.Context, open []core.Extent) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(sealsAtOnce)
	for _, e := range open {
		g.Go(func() error {
			if err := d.Seal(gctx, e); err != nil {
				return core.Errorf(core.CodeOf(err), "seal extent %s: %w", e.ID, err)
			}
			return nil
		})
	}
	return g.Wait()
}
