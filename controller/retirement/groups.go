package retirement

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// deletedFor is at least between the deletion of a group and the removal of its rows: output hosts hear of the deletion
// within seconds, and save for up to a minute what is settled late.
const deletedFor = 10 * time.Minute

// deletedGroups removes the rows of groups that were deleted a while ago.
func (r *Runner) deletedGroups(ctx context.Context) {
	r.hints(ctx, metadata.PartitionDeleted, &r.deleted, r.deletedGroup)
}

// deletionsAtOnce bounds the deletions that a round has under way. One that takes long holds up no other.
const deletionsAtOnce = 8

// hints looks at the hints of deletions page by page while the round has time; the next round looks at those after
// them.
func (r *Runner) hints(ctx context.Context, partition string, after *string, finish func(context.Context, metadata.Row) error) {
	began := time.Now()
	var g errgroup.Group
	defer func() { _ = g.Wait() }()
	g.SetLimit(deletionsAtOnce)
	for more := true; more; {
		var rows []metadata.Row
		var err error
		if rows, more, err = r.hintsAfter(ctx, partition, *after); err != nil {
			r.unread(ctx, err, "cannot list deletions; they are listed again with the next round", "of", partition)
			return
		}
		for _, row := range rows {
			g.Go(func() error {
				ctx, cancel := context.WithTimeout(ctx, stepTimeout)
				defer cancel()
				if err := finish(ctx, row); err != nil {
					r.cfg.Log.Info("a deletion is not finished yet; it is tried again in a later round", "of", partition, "row", row.Key.Row, "err", err)
				}
				return nil
			})
			*after = row.Key.Row // also of one that fails: it must not hold up the others
			if ctx.Err() != nil {
				return
			}
		}
		if more && time.Since(began) >= r.cfg.Every/2 {
			return
		}
	}
	*after = ""
}

func (r *Runner) hintsAfter(ctx context.Context, partition, after string) (rows []metadata.Row, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return r.cfg.Meta.List(ctx, metadata.Work, partition, after, AtOnce, metadata.Quorum)
}

// deletedGroup deletes the built-in queues of a group, if its frontend has not, and later the rows of the group, the
// hint to them last. Any controller goes on where another one stopped.
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
	switch {
	case record.ID != g.Group:
		err = r.deletion().Replaced(ctx, g.Group, record)
	case record.Spec.Status == core.StatusDeleted:
		err = r.deletion().BuiltIn(ctx, record)
	}
	if err != nil {
		return err
	}
	if now.Sub(g.At) < deletedFor {
		return nil
	}
	if record.ID != g.Group || record.Spec.Status == core.StatusDeleted { // else who wanted to delete it failed before the row was changed
		if err := r.forgetGroup(ctx, g); err != nil {
			return err
		}
	}
	return r.removeHint(ctx, hint)
}

// forgetGroup removes the rows of a deleted group from all tables but its own, and marks that one: whoever removes an
// extent need not look for the group's rows any more. A call that does not come to its end goes on with the next one.
func (r *Runner) forgetGroup(ctx context.Context, g metadata.DeletedGroupRecord) error {
	var extents []core.ExtentID
	for e := range r.cfg.Extents.Each(g.Queue) {
		extents = append(extents, e.ID)
	}
	err := r.goOn(g.Group.ID, func(place *progress.Place) error {
		return progress.ForgetGroup(ctx, r.cfg.Meta, g.Group, extents, place, r.cfg.Now())
	})
	if err != nil {
		return err
	}
	_, err = metadata.Change(ctx, r.cfg.Meta, metadata.Groups, metadata.GroupKey(g.Queue, g.Name), func(now *metadata.GroupRecord) error {
		if now.ID != g.Group || now.Spec.Status != core.StatusDeleted || now.Forgotten {
			return metadata.ErrNoChange // the row is of a newer group of that name, or another controller was here
		}
		now.Forgotten = true
		return nil
	})
	return err
}
