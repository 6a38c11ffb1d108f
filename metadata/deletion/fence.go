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
	open, err := d.openExtents(ctx, q.ID)
	if err == nil {
		err = d.sealAll(ctx, open)
	}
	if err != nil {
		code := core.CodeUnavailable
		if core.CodeOf(err) == core.CodeNoMajority {
			code = core.CodeUnknown
		}
		return core.Errorf(code, "queue %s is deleted, but messages can still be stored in it until its %d open extents are sealed, so its path is not free yet; a controller goes on with it, start the stores that are away (`columba list hosts`): %v",
			q.Spec.Path, len(open), err)
	}
	return nil
}

// openExtents are the extents of a queue that have no end, as far as a copy of the metadata says that may be behind.
func (d Deletion) openExtents(ctx context.Context, queue core.QueueID) (open []core.Extent, err error) {
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
	for r, err := range metadata.All[metadata.ExtentRecord](ctx, d.Meta, metadata.Extents, queue.String(), metadata.Quorum) {
		if err != nil {
			return open, err
		}
		if page = append(page, r.Value.Extent); len(page) == fencePage {
			if err := flush(); err != nil {
				return open, err
			}
		}
	}
	return open, flush()
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
