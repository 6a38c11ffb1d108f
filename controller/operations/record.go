package operations

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// These functions write the record of an operation: its progress, the cause of a wait, and its end. Each change is a
// compare-and-set, because another controller may go on with the operation meanwhile, and a user may cancel it.

// save records how far the operation is, and takes over what others did with it.
func (r *Runner) save(ctx context.Context, o *metadata.OperationRecord) error {
	var last metadata.OperationRecord
	row, err := metadata.Change(ctx, r.Meta, metadata.Operations, metadata.OperationKey(o.Object.ID), func(now *metadata.OperationRecord) error {
		if now.ID != o.ID {
			return errReplaced
		}
		if now.State == metadata.OperationCancelled && o.Moved > now.Moved { // it moved before this was heard of
			now.Moved, now.Done = o.Moved, o.Done
			return nil
		}
		last = *o
		if !take(&last, *now) {
			return metadata.ErrNoChange
		}
		last.Error, last.By, last.Changed = "", r.Self, r.Now().UTC()
		*now = last
		return nil
	})
	if errors.Is(err, errReplaced) { // it had ended
		o.State = metadata.OperationCancelled
		return nil
	}
	if err != nil {
		return core.Errorf(core.CodeOf(err), "record the operation: %w", err)
	}
	*o = row
	return nil
}

var errReplaced = errors.New("another operation took its place")

// heard waits until nothing that was moved is handed out any more where it was. note is what the end has to say of
// that; an error says that it is not known.
func (r *Runner) heard(ctx context.Context, o metadata.OperationRecord) (note string, err error) {
	queues := []core.QueueID{o.Object}
	if !o.Queue.IsZero() && o.Queue != o.Object {
		queues = append(queues, o.Queue)
	}
	changed := o.Extents[:o.Moved]
	if o.Shown {
		changed = append(slices.Clone(changed), o.Search.Stage.ID)
	}
	unheard, err := r.Owner.Heard(ctx, changed, queues...)
	switch {
	case err != nil:
		return "", core.Errorf(core.CodeOf(err), "wait for the output hosts: %w", err)
	case len(unheard) > 0:
		return fmt.Sprintf("output hosts %v have not confirmed it yet", unheard), nil
	}
	return "", nil
}

// beyond is what the end has to say of messages that the operation cannot know of: those in extents that a controller
// beyond a cut has made.
func beyond(o metadata.OperationRecord) string {
	if len(o.Unreached) == 0 {
		return ""
	}
	return fmt.Sprintf("controllers %v were not reached: messages that are published where they are, until the network is whole again, are not included; start it again then", o.Unreached)
}

// join is one text of two, either of which may be empty.
func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// finish records the end, unless the runner is.
func (r *Runner) finish(ctx context.Context, o *metadata.OperationRecord, note string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	row, err := r.close(ctx, *o, metadata.OperationDone, note)
	if err == nil && row.ID == o.ID {
		*o = row
	}
	if err == nil && row.ID == o.ID && row.State == metadata.OperationDone {
		r.Log.Info("an operation is done", "operation", o.ID, "kind", o.Kind, "queue", o.Path, "group", o.Name, "messages", o.Done)
	}
	return err
}

func (r *Runner) fail(ctx context.Context, o metadata.OperationRecord, cause error) {
	_, err := r.close(ctx, o, metadata.OperationFailed, cause.Error())
	if err != nil && ctx.Err() == nil {
		r.Log.Info("the end of an operation is not recorded yet", "operation", o.ID, "err", err)
	}
	poke(r.wake)
}

func (r *Runner) close(ctx context.Context, o metadata.OperationRecord, state metadata.OperationState, why string) (metadata.OperationRecord, error) {
	return metadata.Change(ctx, r.Meta, metadata.Operations, metadata.OperationKey(o.Object.ID), func(now *metadata.OperationRecord) error {
		if now.ID != o.ID || now.Ended() {
			return metadata.ErrNoChange
		}
		last := o
		take(&last, *now)
		last.State, last.Error, last.By, last.Changed = state, why, r.Self, r.Now().UTC()
		*now = last
		return nil
	})
}

// note records what the operation waits for, when that is news.
func (r *Runner) note(ctx context.Context, o metadata.OperationRecord, what string) {
	_, err := metadata.Change(ctx, r.Meta, metadata.Operations, metadata.OperationKey(o.Object.ID), func(now *metadata.OperationRecord) error {
		if now.ID != o.ID || now.Ended() || now.Error == what {
			return metadata.ErrNoChange
		}
		now.Error, now.Changed = what, r.Now().UTC()
		return nil
	})
	if err != nil && ctx.Err() == nil {
		r.Log.Debug("what an operation waits for is not recorded", "operation", o.ID, "err", err)
	}
}

// sweep removes the operations of this controller's objects that ended long ago. As with round, a damaged row holds up
// no other.
func (r *Runner) sweep(ctx context.Context) (damaged error) {
	before := r.Now().Add(-keptFor)
	for _, partition := range []string{metadata.PartitionEnded, metadata.PartitionOperation} {
		for o, err := range metadata.All[metadata.OperationRecord](ctx, r.Meta, metadata.Operations, partition, metadata.Quorum) {
			if o.Damaged(err) {
				damaged = err
				continue
			}
			if err != nil {
				return err
			}
			if !o.Value.Ended() || o.Value.Changed.After(before) || !r.Responsible(o.Value.Object.ID) {
				continue
			}
			if err := r.forgetFound(ctx, o.Value.ID); err != nil {
				return err
			}
			if err := metadata.Delete(ctx, r.Meta, metadata.Operations, o.Key, o.Version); err != nil && core.CodeOf(err) != core.CodeConflict && core.CodeOf(err) != core.CodeNotFound {
				return err
			}
		}
	}
	return damaged
}
