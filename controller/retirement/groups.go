package retirement

import (
	"context"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// deletedFor is at least between the deletion of a group and the removal of its rows: output hosts hear of the deletion within seconds, and save
// for up to a minute what is settled late.
const deletedFor = 10 * time.Minute

// deletedGroups removes the rows of groups that were deleted a while ago.
func (r *Runner) deletedGroups(ctx context.Context) {
	r.hints(ctx, metadata.PartitionDeleted, &r.deleted, r.deletedGroup)
}

// hints looks at a page of the hints of deletions; the next round looks at those after it.
func (r *Runner) hints(ctx context.Context, partition string, after *string, finish func(context.Context, metadata.Row) error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	rows, more, err := r.cfg.Meta.List(ctx, metadata.Work, partition, *after, AtOnce, metadata.Quorum)
	if err != nil {
		r.unread(ctx, err, "cannot list deletions; they are listed again with the next round", "of", partition)
		return
	}
	for _, row := range rows {
		*after = row.Key.Row // also of one that fails: it must not hold up the others
		if err := finish(ctx, row); err != nil {
			r.cfg.Log.Info("a deletion is not finished yet; it is tried again in a later round", "of", partition, "row", row.Key.Row, "err", err)
		}
		if ctx.Err() != nil {
			return
		}
	}
	if !more {
		*after = ""
	}
}

// deletedGroup deletes the built-in queues of a group, if its frontend has not, and later the rows of the group, the hint to them last. Any controller goes on where another one stopped.
func (r *Runner) deletedGroup(ctx context.Context, hint metadata.Row) error {
	g, err := metadata.Decode[metadata.DeletedGroupRecord](metadata.Work, hint)
	if err != nil {
		return err
	}
	now := r.cfg.Now()
	if now.Sub(g.At) < finishAfter || !r.cfg.Responsible(g.Queue.ID) {
		return nil
	}
	record, _, err := metadata.Read[metadata.GroupRecord](ctx, r.cfg.Meta, metadata.Groups, metadata.GroupKey(g.Queue, g.Name), metadata.Serial)
	if err != nil {
		return err
	}
	if record.ID == g.Group && record.Spec.Status == core.StatusDeleted { // else a newer group of that name has replaced them
		if err := r.deletion().BuiltIn(ctx, record); err != nil {
			return err
		}
	}
	if now.Sub(g.At) < deletedFor {
		return nil
	}
	if record.ID != g.Group || record.Spec.Status == core.StatusDeleted { // else who wanted to delete it failed before the row was changed
		if err := progress.ForgetGroup(ctx, r.cfg.Meta, g.Group, ids(r.cfg.Extents.ReadBy(g.Queue, g.Group)), now); err != nil {
			return err
		}
	}
	return r.cfg.Meta.Remove(ctx, metadata.Work, hint.Key, hint.Written, metadata.Quorum) // the hint that was read, not one of a later deletion
}

func ids(extents []catalog.Extent) []core.ExtentID {
	out := make([]core.ExtentID, len(extents))
	for i, e := range extents {
		out[i] = e.ID
	}
	return out
}
