package progress

import (
	"context"
	"strings"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/cancel"
	"github.com/columbamq/columba/metadata"
)

// ForgetGroup removes all rows of a deleted group: in extents, and in those that its rows name. It may be done again, and by several callers at
// once. Nothing lists the shares that have checkpoints, so the rows that name an extent go after its checkpoints.
func ForgetGroup(ctx context.Context, meta metadata.Store, group core.GroupID, extents []core.ExtentID, now time.Time) error {
	forgotten := make(map[core.ExtentID]bool, len(extents))
	for _, id := range extents {
		if err := forgetShare(ctx, meta, group, id, now); err != nil {
			return err
		}
		forgotten[id] = true
	}
	for _, table := range []metadata.Table{metadata.Dones, metadata.Assignments} {
		for row, err := range metadata.Rows(ctx, meta, table, group.String(), metadata.Quorum) {
			if err != nil {
				return err
			}
			name, _, _ := strings.Cut(row.Key.Row, "/")
			extent, err := core.ParseID(name)
			if id := (core.ExtentID{ID: extent}); err == nil && !forgotten[id] {
				if err := forgetShare(ctx, meta, group, id, now); err != nil {
					return err
				}
				forgotten[id] = true
			}
			if err := meta.Remove(ctx, table, row.Key, later(now, row.Written), metadata.Quorum); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetShare removes the checkpoints of a share, and what its owners claimed in a group that delivers at most once.
func forgetShare(ctx context.Context, meta metadata.Store, group core.GroupID, id core.ExtentID, now time.Time) error {
	share := metadata.CheckpointPartition(group, id)
	for row, err := range metadata.Rows(ctx, meta, metadata.Checkpoints, share, metadata.Quorum) {
		if err == nil {
			err = meta.Remove(ctx, metadata.Checkpoints, row.Key, later(now, row.Written), metadata.Quorum)
		}
		if err != nil {
			return err
		}
	}
	for row, err := range metadata.Rows(ctx, meta, metadata.Claims, share, metadata.Serial) {
		if err == nil {
			err = metadata.Delete(ctx, meta, metadata.Claims, row.Key, row.Version)
		}
		if err != nil && core.CodeOf(err) != core.CodeNotFound {
			return err
		}
	}
	return nil
}

// ForgetCancelled removes what was cancelled of an extent that is gone.
func ForgetCancelled(ctx context.Context, meta metadata.Store, extent core.ExtentID) error {
	key := metadata.CancelKey(extent)
	_, version, err := metadata.Read[cancel.Book](ctx, meta, metadata.Cancels, key, metadata.Serial)
	if err == nil {
		err = metadata.Delete(ctx, meta, metadata.Cancels, key, version)
	}
	if core.CodeOf(err) == core.CodeNotFound {
		return nil
	}
	return err
}
