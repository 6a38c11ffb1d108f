package operations

import (
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// step is what an operation needs next.
type step uint8

const (
	nothing   step = iota // it has ended
	cover                 // to find the extents that are there
	sealNext              // to fix the end of the next of them
	discard               // to purge a staging extent that came to nothing
	stage                 // to choose where copies go
	register              // to make the rows of that
	search                // to look for the selection in the next part
	decide                // to make what was found count
	moveNext              // to change the home of the next of them, or take out of it what was found
	widen                 // to find what the queue's groups keep elsewhere
	show                  // to give the staging extent to its group
	endOfWork             // to be recorded as done
)

// maxCovered bounds the extents of one operation: their ids are in its row.
const maxCovered = 1000

func next(r *metadata.OperationRecord) step {
	switch {
	case r.Ended():
		return nothing
	case !r.Covered:
		return cover
	case r.Sealed < len(r.Extents):
		return sealNext
	case r.Selection != nil && !r.Decided:
		return nextOfSearch(r)
	case r.Moved < len(r.Extents):
		return moveNext
	case copies(r) && !r.Shown:
		return show
	case wide(r) && !r.Widened:
		return widen
	}
	return endOfWork
}

func nextOfSearch(r *metadata.OperationRecord) step {
	s := r.Search
	switch {
	case s == nil:
		return stage
	case len(s.Discard) > 0:
		return discard
	case copies(r) && s.Stage.ID.IsZero():
		return stage
	case copies(r) && !s.Staged:
		return register
	case s.Extents < len(r.Extents):
		return search
	}
	return decide
}

// copies reports whether what an operation finds is copied.
func copies(r *metadata.OperationRecord) bool {
	return r.Selection != nil && r.Kind == metadata.OperationMerge
}

// wide reports whether an operation concerns also what the groups of its object alone read: messages of their retry
// queues, and dead letters that were merged into them.
func wide(r *metadata.OperationRecord) bool { return r.Group.IsZero() }

// concerns reports whether an operation may change a home.
func concerns(r *metadata.OperationRecord, h core.Home) bool {
	return h.Kind == core.HomeOwn || r.Widened && h.Kind == core.HomeMerged && h.Queue == r.Object
}

// widened adds the oldest of the extents that were found elsewhere, once nothing more gets there from those before.
func widened(r *metadata.OperationRecord, extents []core.ExtentID) {
	r.Widened = true
	some := extents[:min(len(extents), maxCovered)]
	r.Extents = append(slices.Clone(r.Extents), some...)
	r.Left += len(extents) - len(some)
}

// covered fixes what the operation concerns: the oldest of the extents that are there.
func covered(r *metadata.OperationRecord, extents []core.ExtentID) {
	r.Covered, r.Extents = true, extents[:min(len(extents), maxCovered)]
	r.Left = len(extents) - len(r.Extents)
}

// sealed notes the end of the next extent; one that is not the operation's any more counts 0.
func sealed(r *metadata.OperationRecord, l core.Seq) {
	r.Sealed++
	r.Total += uint64(l)
}

// moved notes that the home of the next extent is changed. By its rate the one after that waits until all of this one
// could have begun.
func moved(r *metadata.OperationRecord, l core.Seq, now time.Time) {
	r.Moved++
	r.Done += uint64(l)
	if r.Rate > 0 && r.Selection == nil { // else all of it begins in the staging extent, at that rate
		if r.Next.Before(now) {
			r.Next = now
		}
		r.Pause = time.Duration(float64(l) / float64(r.Rate) * float64(time.Second))
		r.Next = r.Next.Add(r.Pause)
	}
}

// retimed is when the next extent may move by this host's clock: the instant that another one noted may be far off, the
// pause before it is not.
func retimed(r *metadata.OperationRecord, now time.Time) time.Time {
	if latest := now.Add(r.Pause); r.Next.After(latest) {
		return latest
	}
	return r.Next
}

// rests reports whether the rate has the operation wait beyond an instant. When the rest is empty it waits for nothing.
func rests(r *metadata.OperationRecord, until time.Time) bool {
	return next(r) == moveNext && r.Next.After(until) && r.Done < r.Total
}

// take brings r up to the row, which another controller may have brought further; ahead reports whether r knows more
// than the row.
func take(r *metadata.OperationRecord, row metadata.OperationRecord) (ahead bool) {
	if row.Ended() || position(row) >= position(*r) {
		*r = row
		return false
	}
	return true
}

// position rises with every step.
func position(r metadata.OperationRecord) int {
	if !r.Covered {
		return 0
	}
	at := 1 + r.Sealed + r.Moved
	if r.Search != nil {
		at += int(r.Search.Step)
	}
	if r.Decided {
		at++
	}
	if r.Shown {
		at++
	}
	if r.Widened {
		at++
	}
	return at
}

// home is where the extents of the operation go.
func home(r metadata.OperationRecord) core.Home {
	if r.Kind == metadata.OperationMerge {
		return core.MergedInto(r.Queue, r.Group)
	}
	return core.Home{Kind: core.HomePurged}
}
