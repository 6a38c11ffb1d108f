package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

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
			if made, err = h.copyTo(ctx, row, holder{}, st, nil); err == nil {
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
		if st.answering() && !slices.ContainsFunc(e.holders, st.place().sameDisk) {
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
			places = append(places, holder{id, e.Disk(id)})
		}
	}
	for _, x := range places {
		if !known[x.store].answering() && !contradicts(x, known) {
			out = append(out, x.store)
		}
	}
	return out
}

// hasAll asks a store how far its replica goes; whole says that it may be a copy. has is empty when there is nothing, else a text.
func (h *Host) hasAll(ctx context.Context, row metadata.SealRecord, at holder) (has string, whole bool, err error) {
	r, err := h.replicaAt(ctx, row.Extent.ID, at)
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
		return "", row.L == 0, nil // whoever has nothing has all of nothing
	case err != nil:
		return "", false, err
	case r.Damaged:
		return fmt.Sprintf("%s up to %d, damaged", at.store, r.Last), false, nil
	case core.Seq(r.Last) == row.L && r.Checksum != row.Checksum:
		return fmt.Sprintf("%s up to %d, of another content", at.store, r.Last), false, nil
	}
	return fmt.Sprintf("%s up to %d", at.store, r.Last), core.Seq(r.Last) >= row.L, nil
}
