// Package removal finds the operation that took a message out of its queue, and its effect on the message.
package removal

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// looked bounds the operations that are asked whether they took a message, the newest first.
const looked = 1000

// Told says what took the message seq of a sealed extent out of its queue, or lost it, or keeps it from being read
// there; "" for one that is there. Operations that ended long ago are not known any more.
func Told(ctx context.Context, meta metadata.Store, row metadata.SealRecord, seq core.Seq) (string, error) {
	if row.LostFrom > 0 && seq >= row.LostFrom {
		return "it is lost: no store has it any more", nil
	}
	gone, err := row.Gone()
	if err != nil {
		return "", err
	}
	singly := gone.Done(seq)
	if !singly && row.Home.Kind == core.HomeOwn {
		return "", nil
	}
	o, err := taker(ctx, meta, row, seq, singly)
	if err != nil {
		return "", err
	}
	return text(row.Home.Kind, singly, o), nil
}

// text is what is said of it; an operation without an id is not known.
func text(home core.HomeKind, singly bool, o metadata.OperationRecord) string {
	by := "an operation that is not on record any more"
	if !o.ID.IsZero() {
		by = fmt.Sprintf("operation %s, %s", o.ID, o.Changed.UTC().Format(time.RFC3339))
	}
	switch {
	case !singly && home == core.HomeStaging:
		return "it is a copy that is not decided on, by " + by
	case !singly && home == core.HomePurged:
		return "it was purged, by " + by
	case !singly:
		return "it was merged into its group, by " + by
	case o.ID.IsZero():
		return "a selection took it, and merged or purged it, by " + by
	case o.Kind == metadata.OperationPurge:
		return "a selection took it, and it was purged, by " + by
	}
	return fmt.Sprintf("a selection took it, and it was merged into group %s, by %s", o.Name, by)
}

// taker is the operation that took a message singly, or else its whole extent; the zero one when it is not on record.
func taker(ctx context.Context, meta metadata.Store, row metadata.SealRecord, seq core.Seq, singly bool) (none metadata.OperationRecord, err error) {
	all, err := metadata.ListOperations(ctx, meta, true)
	if err != nil {
		return none, core.Errorf(core.CodeOf(err), "list operations: %w", err)
	}
	left := looked
	for _, o := range all {
		if !singly {
			if took(o, row) {
				return o, nil
			}
			continue
		}
		if o.Object != row.Extent.Queue || !o.Decided {
			continue
		}
		if left--; left < 0 {
			break
		}
		found, err := selected(ctx, meta, o.ID, row.Extent.ID, seq)
		if err != nil || found {
			return o, err
		}
	}
	return none, nil
}

// took reports whether an operation changed the home of an extent, or is about to.
func took(o metadata.OperationRecord, row metadata.SealRecord) bool {
	if o.Selection != nil {
		return o.Search != nil && o.Search.Stage.ID == row.Extent.ID
	}
	kind := metadata.OperationMerge
	if row.Home.Kind == core.HomePurged {
		kind = metadata.OperationPurge
	}
	return o.Kind == kind && slices.Contains(o.Extents, row.Extent.ID)
}

// selected reports whether a selection that was decided found a message.
func selected(ctx context.Context, meta metadata.Store, operation core.ID, extent core.ExtentID, seq core.Seq) (bool, error) {
	rec, _, err := metadata.Read[metadata.SelectedRecord](ctx, meta, metadata.Operations, metadata.SelectedKey(operation, extent), metadata.One)
	if core.CodeOf(err) == core.CodeNotFound {
		return false, nil
	}
	if err != nil {
		return false, core.Errorf(core.CodeOf(err), "look up what operation %s took: %w", operation, err)
	}
	found, err := metadata.SealRecord{Removed: rec.Found}.Gone()
	if err != nil {
		return false, err
	}
	return found.Done(seq), nil
}
