package metadata

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
)

// HeadRecord is the newest extent of the chain of a CP queue. It moves by CAS from the old one, and only after the end
// of the old one is fixed. It has the whole tuple: the extent's other rows are written after it, and again by any
// controller that finds them missing.
type HeadRecord struct {
	Queue   core.QueueID  `json:"queue"`
	Extent  core.Extent   `json:"extent"`
	Before  core.ExtentID `json:"before,omitzero"` // see ExtentRecord
	Changed time.Time     `json:"changed"`
	Attempt core.ID       `json:"attempt"` // of the last move, to recognise one's own after a lost answer
}

// HeadKey is where Heads keeps the head of a queue's chain.
func HeadKey(queue core.QueueID) Key { return Key{PartitionID, queue.String()} }

// ReadHead reads the head of a queue's chain; a zero record when it has none yet.
func ReadHead(ctx context.Context, s Store, queue core.QueueID, c Consistency) (HeadRecord, error) {
	r, _, err := Read[HeadRecord](ctx, s, Heads, HeadKey(queue), c)
	if core.CodeOf(err) == core.CodeNotFound {
		return HeadRecord{}, nil
	}
	return r, err
}

// MoveHead makes next the head of its queue's chain if old (zero: none) is it still. Errors: CodeBadArgument when next
// is not the place after old, CodeConflict when another was first, CodeUnavailable (not moved), CodeUnknown: it may be
// moved; read the head again.
func MoveHead(ctx context.Context, s Store, old, next HeadRecord) error {
	if next.Extent.Chain != old.Extent.Chain+1 {
		return core.Errorf(core.CodeBadArgument, "place %d of a chain cannot follow %d", next.Extent.Chain, old.Extent.Chain)
	}
	key := HeadKey(next.Queue)
	var err error
	if old.Extent.ID.IsZero() {
		if err = Create(ctx, s, Heads, key, next); core.CodeOf(err) == core.CodeExists {
			err = core.Errorf(core.CodeConflict, "the chain of queue %s was begun meanwhile", next.Queue)
		}
	} else {
		_, err = Change(ctx, s, Heads, key, func(r *HeadRecord) error {
			if r.Attempt == next.Attempt {
				return ErrNoChange
			}
			if r.Extent.ID != old.Extent.ID {
				return core.Errorf(core.CodeConflict, "the chain of queue %s was moved on meanwhile", next.Queue)
			}
			*r = next
			return nil
		})
	}
	if core.CodeOf(err) != core.CodeUnknown {
		return err
	}
	now, readErr := ReadHead(context.WithoutCancel(ctx), s, next.Queue, Serial)
	switch {
	case readErr == nil && now.Attempt == next.Attempt:
		return nil
	case readErr == nil && now.Extent.Chain >= next.Extent.Chain:
		return core.Errorf(core.CodeConflict, "the chain of queue %s was moved on meanwhile", next.Queue)
	}
	return err
}
