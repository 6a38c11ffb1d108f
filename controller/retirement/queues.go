package retirement

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/deletion"
)

// finishAfter is how old a deletion is that a controller finishes: the frontend that began it is done by then, or dead.
const finishAfter = 10 * time.Second

// deletion deletes the rows of queues and groups as a frontend does.
func (r *Runner) deletion() deletion.Deletion {
	return deletion.Deletion{Meta: r.cfg.Meta, Now: r.cfg.Now, Seal: func(ctx context.Context, e core.Extent) error { return r.owner.Seal(ctx, e, "queue deleted") }}
}

// deletedQueues finishes deletions of queues that a frontend began and did not bring to their end.
func (r *Runner) deletedQueues(ctx context.Context) {
	r.hints(ctx, metadata.PartitionDeletedQueue, &r.dying, r.deletedQueue)
}

// deletedQueue finishes the deletion of a queue. A frontend that creates a group beside the deletion may write the
// group, and its dead letter queue, after the deletion has listed the groups; it deletes them, or dies before that. So
// the groups are listed once more when such a creation has ended, and the hint goes then. Any controller goes on where
// another one stopped.
func (r *Runner) deletedQueue(ctx context.Context, row metadata.Row) error {
	hint, err := metadata.Decode[metadata.DeletedQueueRecord](metadata.Work, row)
	if err != nil {
		return err
	}
	if !r.cfg.Responsible(hint.Queue.ID) {
		return nil
	}
	r.isDeleted(hint.Queue)
	age := r.cfg.Now().Sub(hint.At)
	if age < finishAfter || hint.Done && age < deletedFor {
		return nil
	}
	begun, err := r.deletion().Resume(ctx, hint)
	if err != nil || !begun && age < deletedFor { // its frontend may be slow
		return err
	}
	if begun && !hint.Done {
		r.cfg.Log.Info("the deletion of a queue is finished, which a frontend had left", "queue", hint.Path)
		hint.Done = true
		if age < deletedFor { // of a later deletion it leaves the hint, which has a later time
			return metadata.Write(ctx, r.cfg.Meta, metadata.Work, row.Key, hint, row.Written.Add(metadata.Tick), 0, metadata.Quorum)
		}
	}
	return r.removeHint(ctx, row)
}

// removeHint removes the hint that was read, not one of a later deletion.
func (r *Runner) removeHint(ctx context.Context, row metadata.Row) error {
	return r.cfg.Meta.Remove(ctx, metadata.Work, row.Key, row.Written, metadata.Quorum)
}
