package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/columbamq/columba/controller/backlog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// urgentTries is how many stores are tried in turn for a copy that somebody may wait for, or that one store has refused.
const urgentTries = 3

// errMoved: somebody else changed the holders meanwhile.
var errMoved = errors.New("the holders changed meanwhile")

// repair makes the one copy that an extent lacks, or drops the one it has too many:
//
//	row ──▶ fence the target ──▶ copy from a holder ──▶ seal there at version + 1, fsynced ──▶ CAS: holder added, version + 1
//
// In a hurry it does so only below the minimum, else backlog.ErrNotUrgent.
func (h *Host) repair(ctx context.Context, id core.ExtentID, hurry bool) error {
	row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(id), metadata.Serial)
	if err != nil {
		return err
	}
	h.extents.took(row)
	e, ok := h.extents.get(id)
	if !ok || row.State != core.ExtentSealed {
		return nil
	}
	known := h.storeView()
	switch j := h.judge(e, known, h.deps.now()); {
	case j.Repair && hurry && !j.Below:
		return backlog.ErrNotUrgent
	case j.Repair:
		return h.addCopy(ctx, e, row, known, j.Below)
	case j.Surplus > 0:
		return h.dropSurplus(ctx, e, row, known)
	}
	return nil
}

func (h *Host) addCopy(ctx context.Context, e extent, row metadata.SealRecord, known map[core.HostID]store, urgent bool) error {
	sources := answeringHolders(e, known)
	if len(sources) == 0 {
		return h.promote(ctx, e, row, known)
	}
	targets := h.targets(e, known)
	if len(targets) == 0 {
		return nil // nowhere to put it: a store that comes wakes the sweep
	}
	pace, tries := h.pace.Wait, 1
	if urgent || h.repairs.Failing(e.ID) { // if one store does not take it, the next one may
		tries = urgentTries
	}
	if urgent { // somebody may wait for it
		pace = nil
	}
	targets = targets[:min(tries, len(targets))]
	var err error
	for len(targets) > 0 {
		source, target := sources[0], known[targets[0]]
		if row, err = h.copyTo(ctx, row, source, target, pace); err == nil {
			return h.gained(ctx, row, target.place(), known, urgent)
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
		return h.promote(ctx, e, row, known)
	}
	return err
}

// gained records a copy that is complete on its store.
func (h *Host) gained(ctx context.Context, row metadata.SealRecord, at core.Place, known map[core.HostID]store, urgent bool) error {
	row, err := h.addHolder(ctx, row, at, known)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "record its copy on %s: %w", at.Store, err)
	}
	id := row.Extent.ID
	h.extents.took(row)
	h.repairs.Found(id)
	h.shares.touchHolders(row.Extent)
	h.metrics.repaired.Inc()
	if e, ok := h.extents.get(id); ok && e.told {
		h.finished(ctx, row)
	}
	h.log.Info("an extent has a copy more", "extent", id, "store", at.Store, "holders", row.Holders)
	h.repairs.Add(id, urgent) // it may lack another
	return nil
}

// answeringHolders are those that a copy may be made from.
func answeringHolders(e extent, known map[core.HostID]store) (out []core.Place) {
	for _, x := range e.holders {
		if known[x.Store].answering() && !contradicts(x, known) {
			out = append(out, x)
		}
	}
	return out
}

// addHolder records a copy that is complete on its store. Holders whose disks are gone make room.
func (h *Host) addHolder(ctx context.Context, row metadata.SealRecord, add core.Place, known map[core.HostID]store) (metadata.SealRecord, error) {
	for {
		next, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(row.Extent.ID), func(r *metadata.SealRecord) error {
			if r.State != core.ExtentSealed {
				return metadata.ErrNoChange
			}
			if r.Version != row.Version {
				return errMoved
			}
			holders := slices.DeleteFunc(r.Places(), func(x core.Place) bool { return x.Store == add.Store || contradicts(x, known) })
			r.SetPlaces(append(holders, add))
			r.Version, r.Changed = r.Version+1, h.deps.now()
			return nil
		})
		if !errors.Is(err, errMoved) {
			return next, err
		}
		// The store must know the version that adds it, before a deletion that an older one decided.
		row = next
		if err := h.sealReplica(ctx, row, add, row.Version+1); err != nil {
			return row, err
		}
	}
}

// quarantine takes a store that is damaged out of the holders; the last one stays: something may still be read from it.
func (h *Host) quarantine(ctx context.Context, id core.ExtentID, from core.HostID, why string) {
	dropped := false
	row, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(id), func(r *metadata.SealRecord) error {
		holders := r.Places()
		left := slices.DeleteFunc(slices.Clone(holders), func(x core.Place) bool { return x.Store == from })
		dropped = r.State.HasEnd() && len(left) > 0 && len(left) < len(holders)
		if !dropped {
			return metadata.ErrNoChange
		}
		r.SetPlaces(left)
		r.Version, r.Changed = r.Version+1, h.deps.now()
		return nil
	})
	if err != nil {
		h.log.Warn("a damaged replica could not be quarantined yet", "extent", id, "store", from, "err", err)
		return
	}
	h.extents.took(row)
	h.log.Error("a replica is damaged", "extent", id, "store", from, "why", why, "dropped", dropped, "holders", row.Holders)
	if dropped {
		h.metrics.quarantined.Inc()
		h.shares.touchHolders(row.Extent)
	}
	h.repairs.Want(id)
}

// dropSurplus gives up one copy of more than are wanted, after all were looked at.
func (h *Host) dropSurplus(ctx context.Context, e extent, row metadata.SealRecord, known map[core.HostID]store) error {
	verified := make([]core.Place, 0, len(e.holders))
	for _, x := range e.holders {
		if known[x.Store].answering() && !contradicts(x, known) && h.verify(ctx, row, x) == nil {
			verified = append(verified, x)
		}
	}
	if len(verified) <= e.wanted() {
		return nil
	}
	drop := victim(e, verified, known)
	next, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), func(r *metadata.SealRecord) error {
		if r.State != core.ExtentSealed || r.Version != row.Version {
			return errMoved
		}
		r.SetPlaces(slices.DeleteFunc(r.Places(), func(x core.Place) bool { return x.Store == drop.Store }))
		r.Version, r.Changed = r.Version+1, h.deps.now()
		return nil
	})
	if err != nil {
		return core.Errorf(core.CodeOf(err), "drop its copy on %s: %w", drop.Store, err)
	}
	h.extents.took(next)
	h.shares.touchHolders(next.Extent)
	h.log.Info("an extent has a copy less: it had more than wanted", "extent", e.ID, "store", drop.Store, "holders", next.Holders)
	return h.removeReplica(ctx, next, drop)
}

// victim is the copy whose loss hurts least: of the zone with the most of them, of a store that was not among the first replicas.
func victim(e extent, from []core.Place, known map[core.HostID]store) core.Place {
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

// promote makes a holder of a replica that has everything up to the end and is none, when no holder can be copied from: its rolling checksum
// at the end is the row's, so its bytes are the extent's. Stores that never heard of the extent are asked, but not changed. When nobody is
// away who may have it, the extent is lost, which is kept until somebody turns up.
func (h *Host) promote(ctx context.Context, e extent, row metadata.SealRecord, known map[core.HostID]store) error {
	var left []string
	away := mayComeBack(e, known)
	for _, st := range mayHave(e, known) {
		has, whole, err := h.hasAll(ctx, row, st.place())
		if whole {
			var made metadata.SealRecord
			if made, err = h.copyTo(ctx, row, core.Place{}, st, nil); err == nil {
				h.log.Warn("a replica that was no holder is made one: no holder can be read", "extent", e.ID, "store", st.ID, "holders", row.Holders)
				return h.gained(ctx, made, st.place(), known, true)
			}
		}
		switch {
		case err != nil && !readsAsOther(err):
			away = append(away, st.ID)
		case has != "":
			left = append(left, has)
		}
	}
	there := "there is nothing of it"
	if len(left) > 0 {
		there = "there is " + strings.Join(left, ", ")
	}
	if len(away) > 0 {
		h.repairs.Found(e.ID)
		return core.Errorf(core.CodeUnavailable, "no store that answers has it up to seq %d, %v may have it; %s", row.L, away, there)
	}
	if h.repairs.Lost(e.ID) {
		h.log.Error("the end of an extent is lost: no store has it any more", "extent", e.ID, "queue", e.Queue, "l", row.L, "replicas", e.Replicas, "left", left)
	}
	return core.Errorf(core.CodeUnavailable, "no store has it up to seq %d any more, bring back a disk that had it; %s", row.L, there)
}

// readsAsOther reports whether a replica turned out to be another than the row's when it was to become a holder.
func readsAsOther(err error) bool {
	return core.CodeOf(err) == core.CodeCorrupt || core.CodeOf(err) == core.CodeIncomplete
}

// mayHave are the stores that answer and are no holders, the extent's first ones first.
func mayHave(e extent, known map[core.HostID]store) (out []store) {
	for _, id := range slices.Sorted(maps.Keys(known)) {
		st := known[id]
		if st.answering() && !slices.ContainsFunc(e.holders, st.place().Same) {
			out = append(out, st)
		}
	}
	slices.SortStableFunc(out, func(a, b store) int { return boolInt(isReplica(e, b.ID)) - boolInt(isReplica(e, a.ID)) })
	return out
}

// mayComeBack are the stores that had a replica and do not answer; those that came back with another disk will not.
func mayComeBack(e extent, known map[core.HostID]store) (out []core.HostID) {
	places := slices.Clone(e.holders)
	for _, id := range e.Replicas {
		if !e.holds(id) {
			places = append(places, core.Place{Store: id, Disk: e.Disk(id)})
		}
	}
	for _, x := range places {
		if !known[x.Store].answering() && !contradicts(x, known) {
			out = append(out, x.Store)
		}
	}
	return out
}

// hasAll asks a store how far its replica goes; whole says that it may be a copy. has is empty when there is nothing, else a text.
func (h *Host) hasAll(ctx context.Context, row metadata.SealRecord, at core.Place) (has string, whole bool, err error) {
	r, err := h.replicaAt(ctx, row.Extent.ID, at)
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
		return "", row.L == 0, nil // whoever has nothing has all of nothing
	case err != nil:
		return "", false, err
	case r.Damaged:
		return fmt.Sprintf("%s up to %d, damaged", at.Store, r.Last), false, nil
	case core.Seq(r.Last) == row.L && r.Checksum != row.Checksum:
		return fmt.Sprintf("%s up to %d, of another content", at.Store, r.Last), false, nil
	}
	return fmt.Sprintf("%s up to %d", at.Store, r.Last), core.Seq(r.Last) >= row.L, nil
}
