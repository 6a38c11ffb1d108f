package repair

import (
	"context"
	"slices"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
	"github.com/columbamq/columba/metadata"
)

// targetTimeout is how long a store may take to answer the fence before a copy.
const targetTimeout = time.Second

// sourceError is a failure to read what was to be copied.
type sourceError struct{ error }

func (e sourceError) Unwrap() error { return e.error }

// copyTo completes the target's replica, and returns the row that it used for that. A replica of another content is
// cleared away before. Without a source (zero), only a replica that is complete already is accepted.
func (r *Runner) copyTo(ctx context.Context, row metadata.SealRecord, source core.Place, target catalog.Store, pace func(context.Context, int) error) (metadata.SealRecord, error) {
	at := target.Place()
	a, useless, err := r.assess(ctx, row, source, at)
	if err != nil {
		return row, err
	}
	if useless {
		if row, err = r.removeUseless(ctx, row, source, at); err != nil {
			return row, err
		}
		if a, useless, err = r.assess(ctx, row, source, at); err != nil {
			return row, err
		}
	}
	end, _, _ := row.HeldTo()
	switch {
	case useless:
		return row, core.Errorf(core.CodeConflict, "store %s cannot be believed about it", at.Store)
	case a.Last < end && source.Store == "":
		return row, core.Errorf(core.CodeIncomplete, "store %s has it up to seq %d, and holders up to %d", at.Store, a.Last, end)
	case a.Last < end:
		unread, err := r.replicas.Copy(ctx, row.Extent.ID, source, at, a.Last+1, end, pace)
		if unread && core.CodeOf(err) == core.CodeCorrupt {
			r.Quarantine(ctx, row.Extent.ID, source.Store, "it cannot be read")
		}
		if unread {
			err = sourceError{err}
		}
		if err != nil {
			return row, err
		}
	}
	return row, r.keep(ctx, row, at)
}

// keep has a store that is to become a holder keep the end, and the version that makes it one. Of an extent that was
// given up in part a replica does not come up to its end, so no store can see for itself that it has all that is left.
func (r *Runner) keep(ctx context.Context, row metadata.SealRecord, at core.Place) error {
	err := r.replicas.Seal(ctx, row, at, row.Version+1)
	if row.LostFrom == 0 || err != nil && core.CodeOf(err) != core.CodeIncomplete {
		return err
	}
	return r.replicas.Verify(ctx, row, at)
}

// assess fences a replica that is no holder, and checks its records. A replica is useless if it is damaged, or differs
// from the extent before the replica's end. A replica that contradicts the end of the extent is an alarm and stays as
// it is: it may have the only copy of acknowledged records. Records beyond an end that an operator accepted are
// useless, too, unless no other store has everything before that end. After records were given up, only the fact that
// no store had more proves the rest, so a replica with another content keeps it.
func (r *Runner) assess(ctx context.Context, row metadata.SealRecord, source, at core.Place) (a core.FenceAnswer, useless bool, err error) {
	fctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	a, err = r.replicas.Fence(fctx, row.Extent, at, row.Version+1)
	switch {
	case err != nil:
		return a, false, err
	case a.Identity.Disk != at.Disk:
		return a, false, core.Errorf(core.CodeConflict, "store %s has another disk by now", at.Store)
	case a.Committed > row.L && !row.Forced:
		r.cfg.Metrics.Alarms.WithLabelValues(string(seal.AlarmBelowFloor)).Inc()
		return a, false, core.Errorf(core.CodeConflict, "store %s knows seq %d as committed, the row ends at %d: what it has is kept; look at it", at.Store, a.Committed, row.L)
	case a.Health == core.HealthSuspect, a.Committed > row.L && row.LostFrom == 0:
		return a, true, nil
	case a.Committed > row.L:
		return a, false, core.Errorf(core.CodeCorrupt, "store %s knows seq %d as committed, the row ends at %d, of which there is less elsewhere: what it has is kept; look at it", at.Store, a.Committed, row.L)
	case a.Sealed && a.L != row.L:
		r.cfg.Metrics.Alarms.WithLabelValues(string(seal.AlarmTwoEnds)).Inc()
		return a, false, core.Errorf(core.CodeCorrupt, "store %s persisted the end %d, the row says %d", at.Store, a.L, row.L)
	}
	useless, err = r.differs(ctx, row, source, at, a)
	if useless && row.LostFrom > 0 {
		return a, false, core.Errorf(core.CodeCorrupt, "store %s has another content than what is left of it elsewhere: what it has is kept; look at it", at.Store)
	}
	return a, useless, err
}

// differs reports whether a replica's batches are others than the extent's, as far as both go: rolling checksums are of
// all before.
func (r *Runner) differs(ctx context.Context, row metadata.SealRecord, source, at core.Place, a core.FenceAnswer) (bool, error) {
	id := row.Extent.ID
	end, want, _ := row.HeldTo()
	switch {
	case a.Last == end:
		return a.Checksum != want, nil
	case a.Last > end:
		sum, whole, err := r.replicas.Checksum(ctx, id, at, end)
		return err == nil && (!whole || sum != want), err
	case a.Last == 0, source.Store == "":
		return false, nil
	}
	sum, whole, err := r.replicas.Checksum(ctx, id, source, a.Last)
	if err != nil {
		return false, sourceError{err}
	}
	return !whole || sum != a.Checksum, nil
}

// removeUseless clears away a replica that is no copy, once a good one was looked at.
func (r *Runner) removeUseless(ctx context.Context, row metadata.SealRecord, source, from core.Place) (metadata.SealRecord, error) {
	if source.Store == "" {
		return row, core.Errorf(core.CodeCorrupt, "store %s does not have what the row says", from.Store)
	}
	if err := r.replicas.Verify(ctx, row, source); err != nil {
		return row, sourceError{err}
	}
	row, err := r.decideRemoval(ctx, row, from)
	if err != nil {
		return row, err
	}
	r.cfg.Log.Warn("a replica that is damaged or of another content is cleared away", "extent", row.Extent.ID, "store", from.Store)
	return row, r.replicas.Remove(ctx, row, from)
}

// decideRemoval gives the holders a new version. A store that is no holder removes its replica by that version. It
// refuses an older one than it has heard of, and asks a controller to confirm the decision from the row.
func (r *Runner) decideRemoval(ctx context.Context, row metadata.SealRecord, from core.Place) (metadata.SealRecord, error) {
	next, err := metadata.Change(ctx, r.cfg.Meta, metadata.Seals, metadata.SealKey(row.Extent.ID), func(s *metadata.SealRecord) error {
		if s.State != core.ExtentSealed || s.Version != row.Version || slices.ContainsFunc(s.Places(), from.Same) {
			return errMoved
		}
		s.DecideRemoval(from, r.cfg.Now())
		return nil
	})
	if err == nil {
		r.cfg.Extents.Took(next)
	}
	return next, err
}
