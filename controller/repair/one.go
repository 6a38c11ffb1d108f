package repair

import (
	"context"
	"errors"
	"slices"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/repair/backlog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// urgentTries is how many stores are tried in turn for a copy that somebody may wait for, or that one store has
// refused.
const urgentTries = 3

// errMoved: somebody else changed the holders meanwhile.
var errMoved = errors.New("the holders changed meanwhile")

// repair makes the one copy that an extent lacks, or drops the one it has too many:
//
//	row ──▶ fence the target ──▶ copy from a holder ──▶ seal there at version + 1, fsynced ──▶ CAS: holder added, version + 1
//
// Of an extent that was given up in part it copies what is left, and looks whether the target has just that.
// In a hurry it does so only below the minimum, else backlog.ErrNotUrgent.
func (r *Runner) repair(ctx context.Context, id core.ExtentID, hurry bool) error {
	row, _, err := metadata.Read[metadata.SealRecord](ctx, r.cfg.Meta, metadata.Seals, metadata.SealKey(id), metadata.Serial)
	if err != nil {
		return err
	}
	r.cfg.Extents.Took(row)
	e, ok := r.cfg.Extents.Get(id)
	if !ok || row.State != core.ExtentSealed || !r.mine(e) {
		return nil
	}
	if _, _, some := row.HeldTo(); !some {
		return nil
	}
	if x, doubted := r.doubted(e); doubted && len(e.Holders) > 1 { // others hold it now: this one has all of it after all, or is taken out
		if r.verified(ctx, row, x) {
			r.trust(id)
			r.backlog.Add(id, false)
		}
		return nil
	}
	known := r.cfg.Stores.Snapshot()
	switch j := r.judge(e, known, r.cfg.Now()); {
	case j.Repair && hurry && !j.Below:
		return backlog.ErrNotUrgent
	case j.Repair:
		return r.addCopy(ctx, e, row, known, j.Below)
	case j.Surplus > 0:
		return r.dropSurplus(ctx, e, row, known)
	}
	return nil
}

func (r *Runner) addCopy(ctx context.Context, e catalog.Extent, row metadata.SealRecord, known map[core.HostID]catalog.Store, urgent bool) error {
	sources := slices.DeleteFunc(answeringHolders(e, known), func(x core.Place) bool { return r.doubts(e.ID, x) })
	if len(sources) == 0 {
		return r.promote(ctx, e, row, known)
	}
	targets := r.targets(e, known)
	if len(targets) == 0 {
		return nil // nowhere to put it: a store that comes wakes the sweep
	}
	pace, tries := r.pace.Wait, 1
	if urgent || r.backlog.Failing(e.ID) { // if one store does not take it, the next one may
		tries = urgentTries
	}
	if urgent { // somebody may wait for it
		pace = nil
	}
	targets = targets[:min(tries, len(targets))]
	var err error
	for len(targets) > 0 {
		source, target := sources[0], known[targets[0]]
		if row, err = r.copyTo(ctx, row, source, target, pace); err == nil {
			return r.gained(ctx, row, target.Place(), known, urgent)
		}
		err = core.Errorf(core.CodeOf(err), "copy it from %s to %s: %w", source.Store, target.ID, err)
		var broken sourceError
		if len(sources) > 1 && errors.As(err, &broken) {
			sources = sources[1:]
		} else {
			targets = targets[1:]
		}
	}
	if urgent && readsAsLost(err) { // a holder by name only
		return r.promote(ctx, e, row, known)
	}
	return err
}

// gained records a copy that is complete on its store.
func (r *Runner) gained(ctx context.Context, row metadata.SealRecord, at core.Place, known map[core.HostID]catalog.Store, urgent bool) error {
	row, err := r.addHolder(ctx, row, at, known)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "record its copy on %s: %w", at.Store, err)
	}
	id := row.Extent.ID
	r.cfg.Extents.Took(row)
	r.backlog.Found(id)
	r.owner.Gained(ctx, row)
	r.cfg.Metrics.Made.Inc()
	r.cfg.Log.Info("an extent has one more copy", "extent", id, "store", at.Store, "holders", row.Holders)
	r.backlog.Add(id, urgent) // it may lack another
	return nil
}

// answeringHolders are those that a copy may be made from.
func answeringHolders(e catalog.Extent, known map[core.HostID]catalog.Store) (out []core.Place) {
	for _, x := range e.Holders {
		if known[x.Store].Answering() && !contradicts(x, known) {
			out = append(out, x)
		}
	}
	return out
}

// addHolder records a copy that is complete on its store. Holders whose disks are gone make room.
func (r *Runner) addHolder(ctx context.Context, row metadata.SealRecord, add core.Place, known map[core.HostID]catalog.Store) (metadata.SealRecord, error) {
	lostFrom := row.LostFrom // when the copy was made
	for {
		next, err := metadata.Change(ctx, r.cfg.Meta, metadata.Seals, metadata.SealKey(row.Extent.ID), func(s *metadata.SealRecord) error {
			switch {
			case s.State != core.ExtentSealed:
				return metadata.ErrNoChange
			case s.LostFrom != lostFrom:
				return core.Errorf(core.CodeConflict, "from %d on it was given up meanwhile", s.LostFrom)
			case s.Version != row.Version:
				return errMoved
			}
			holders := slices.DeleteFunc(s.Places(), func(x core.Place) bool { return x.Store == add.Store || contradicts(x, known) })
			s.SetPlaces(append(holders, add))
			s.Unacked = s.Unacked && (s.LostFrom > 0 || !s.Enough())
			s.Version, s.Changed = s.Version+1, r.cfg.Now()
			return nil
		})
		if !errors.Is(err, errMoved) {
			return next, err
		}
		// The store must know the version that adds it, before a deletion that an older one decided.
		row = next
		if err := r.keep(ctx, row, add); err != nil {
			return row, err
		}
	}
}

// Quarantine takes a store that is damaged, or lacks something, out of the holders. The last one stays, since something
// may still be read from it, but counts as no copy any more. The row of a retired extent stays as it is: its stores
// remove their replicas by its version.
func (r *Runner) Quarantine(ctx context.Context, id core.ExtentID, from core.HostID, why string) {
	dropped, last := false, core.Place{}
	row, err := metadata.Change(ctx, r.cfg.Meta, metadata.Seals, metadata.SealKey(id), func(s *metadata.SealRecord) error {
		dropped, last = false, core.Place{}
		if s.State == core.ExtentRetired {
			return metadata.ErrNoChange
		}
		holders := s.Places()
		left := slices.DeleteFunc(slices.Clone(holders), func(x core.Place) bool { return x.Store == from })
		dropped = s.State.HasEnd() && len(left) > 0 && len(left) < len(holders)
		if len(left) == 0 && len(holders) == 1 {
			last = holders[0]
		}
		if !dropped {
			return metadata.ErrNoChange
		}
		s.SetPlaces(left)
		s.Version, s.Changed = s.Version+1, r.cfg.Now()
		return nil
	})
	if err != nil {
		r.cfg.Log.Warn("a damaged replica could not be quarantined yet", "extent", id, "store", from, "err", err)
		return
	}
	r.cfg.Extents.Took(row)
	if row.State == core.ExtentRetired {
		return
	}
	if last.Store != "" {
		if r.doubts(id, last) { // it was said
			r.backlog.Want(id)
			return
		}
		r.distrust(id, last)
	}
	r.cfg.Log.Error("a replica is damaged, or short", "extent", id, "store", from, "why", why, "dropped", dropped, "holders", row.Holders)
	if dropped {
		r.cfg.Metrics.Quarantined.Inc()
		r.owner.Moved(row.Extent)
	}
	r.backlog.Want(id)
}

// dropSurplus gives up one copy of more than are wanted, after all were looked at.
func (r *Runner) dropSurplus(ctx context.Context, e catalog.Extent, row metadata.SealRecord, known map[core.HostID]catalog.Store) error {
	verified := make([]core.Place, 0, len(e.Holders))
	for _, x := range e.Holders {
		if known[x.Store].Answering() && !contradicts(x, known) && r.replicas.Verify(ctx, row, x) == nil {
			verified = append(verified, x)
		}
	}
	if len(verified) <= e.Copies() {
		return nil
	}
	drop := victim(e, verified, known)
	next, err := metadata.Change(ctx, r.cfg.Meta, metadata.Seals, metadata.SealKey(e.ID), func(s *metadata.SealRecord) error {
		if s.State != core.ExtentSealed || s.Version != row.Version {
			return errMoved
		}
		s.SetPlaces(slices.DeleteFunc(s.Places(), func(x core.Place) bool { return x.Store == drop.Store }))
		s.DecideRemoval(drop, r.cfg.Now())
		return nil
	})
	if err != nil {
		return core.Errorf(core.CodeOf(err), "drop its copy on %s: %w", drop.Store, err)
	}
	r.cfg.Extents.Took(next)
	r.owner.Moved(next.Extent)
	r.cfg.Log.Info("a surplus copy of an extent is removed", "extent", e.ID, "store", drop.Store, "holders", next.Holders)
	return r.replicas.Remove(ctx, next, drop)
}

// victim is the copy whose loss hurts least: of the zone with the most of them, of a store that was not among the first
// replicas.
func victim(e catalog.Extent, from []core.Place, known map[core.HostID]catalog.Store) core.Place {
	zones := make(map[string]int)
	for _, x := range from {
		zones[known[x.Store].Zone]++
	}
	return slices.MaxFunc(from, func(a, b core.Place) int {
		if d := zones[known[a.Store].Zone] - zones[known[b.Store].Zone]; d != 0 {
			return d
		}
		if d := boolInt(!isReplica(e, a.Store)) - boolInt(!isReplica(e, b.Store)); d != 0 {
			return d
		}
		return slices.Compare([]byte(a.Store), []byte(b.Store))
	})
}

// readsAsLost reports whether a copy failed since the holder does not have what it should.
func readsAsLost(err error) bool {
	var broken sourceError
	return errors.As(err, &broken) && (core.CodeOf(err) == core.CodeCorrupt || core.CodeOf(err) == core.CodeNotFound)
}
