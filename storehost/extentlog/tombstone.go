package extentlog

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
)

// Bounds of what is remembered of removed extents.
const (
	tombstoneLife = 24 * time.Hour
	maxTombstones = 1 << 16
	tombstoneLen  = 1 + 8 + 8
)

// graveyard remembers removed extents, so that a call that was on its way does not bring one back: an opening would let
// a writer that slept through seal and removal acknowledge records that nobody will ever look for, a fence would let
// copies follow. It is bounded: what is forgotten leaves the horizon behind, and no extent made before that is opened
// as a new one.
//
// It belongs to commitLoop.
type graveyard struct {
	graves  map[core.ExtentID]tombstone
	order   []grave // by time of removal; may hold graves that are gone
	horizon time.Time
	lost    time.Time // extents made up to here may have been in rows that were lost; zero: none were
}

type tombstone struct {
	version uint64 // of the holders by which it was removed; a newer one may bring the extent back
	removed time.Time
}

type grave struct {
	id      core.ExtentID
	removed time.Time
}

// admitsOpening refuses an extent that was removed, or may have been.
func (y *graveyard) admitsOpening(id core.ExtentID) error {
	if _, removed := y.graves[id]; removed {
		return core.Errorf(core.CodeFenced, "extent %s was removed from this store; an extent has one writer in its life", id)
	}
	if !y.horizon.IsZero() && !id.Time().After(y.horizon) {
		return core.Errorf(core.CodeFenced, "extent %s was made at %s, too long ago to be opened only now", id, id.Time().UTC().Format(time.RFC3339))
	}
	return nil
}

// admitsReturn refuses a fence that would bring a removed extent back without a newer decision.
func (y *graveyard) admitsReturn(id core.ExtentID, version uint64) error {
	if t, removed := y.graves[id]; removed && version <= t.version {
		return core.Errorf(core.CodeConflict, "extent %s was removed from this store by version %d of its holders; to put it here again, a newer version must say so", id, t.version)
	}
	return nil
}

// admitsRemoval refuses the removal of an extent that is not here, unless it is remembered as removed by that version
// or a newer one. To remember a version that no seal told would keep copies away: a wrong, large one for as long as it
// is remembered.
func (y *graveyard) admitsRemoval(id core.ExtentID, version uint64) error {
	if t, removed := y.graves[id]; removed && version <= t.version {
		return nil
	}
	return core.Errorf(core.CodeConflict, "extent %s is not here, and no end of version %d was told; tell the store the end with that version before it removes the extent", id, version)
}

// load takes one from the disk.
func (y *graveyard) load(id core.ExtentID, value []byte) error {
	if len(value) != tombstoneLen || value[0] != rowVersion {
		return core.Errorf(core.CodeCorrupt, "tombstone of %d bytes is not of version %d", len(value), rowVersion)
	}
	removed := time.UnixMilli(int64(binary.LittleEndian.Uint64(value[1:])))
	y.graves[id] = tombstone{binary.LittleEndian.Uint64(value[9:]), removed}
	y.order = append(y.order, grave{id, removed})
	return nil
}

// stageBurial remembers a removal and forgets what is too old or too much.
func (e *Engine) stageBurial(g *group, id core.ExtentID, version uint64, now time.Time) error {
	y := &e.graveyard
	removed := time.UnixMilli(now.UnixMilli())
	y.graves[id] = tombstone{version, removed}
	y.order = append(y.order, grave{id, removed})
	value := make([]byte, 0, tombstoneLen)
	value = append(value, rowVersion)
	value = binary.LittleEndian.AppendUint64(value, uint64(removed.UnixMilli()))
	value = binary.LittleEndian.AppendUint64(value, version)
	if err := g.batch.Set(extentKey(prefixTombstone, id), value, nil); err != nil {
		return e.fail(err)
	}
	return e.stageForgetting(g, now)
}

// stageForgetting moves the horizon over the graves it drops; a few at each burial, so that it keeps up.
func (e *Engine) stageForgetting(g *group, now time.Time) error {
	y := &e.graveyard
	horizon := y.horizon
	for range 4 {
		if len(y.order) == 0 {
			break
		}
		old := y.order[0]
		t, there := y.graves[old.id]
		current := there && t.removed.Equal(old.removed)
		if current && now.Sub(old.removed) < tombstoneLife && len(y.graves) <= maxTombstones {
			break
		}
		y.order = y.order[1:]
		if !current {
			continue
		}
		if at := old.id.Time(); at.After(horizon) && at.Before(now) { // a clock that was wrong must not close the store
			horizon = at
		}
		if err := e.stageExhumation(g, old.id); err != nil {
			return err
		}
	}
	if horizon.Equal(y.horizon) {
		return nil
	}
	y.horizon = horizon
	if err := g.batch.Set(keyHorizon, binary.LittleEndian.AppendUint64(nil, uint64(horizon.UnixMilli())), nil); err != nil {
		return e.fail(err)
	}
	return nil
}

// stageExhumation forgets a removal.
func (e *Engine) stageExhumation(g *group, id core.ExtentID) error {
	if _, there := e.graveyard.graves[id]; !there {
		return nil
	}
	delete(e.graveyard.graves, id)
	if err := g.batch.Delete(extentKey(prefixTombstone, id), nil); err != nil {
		return e.fail(err)
	}
	return nil
}

// loadGraveyard reads what is remembered of removed extents.
func (e *Engine) loadGraveyard() error {
	e.graveyard.graves = make(map[core.ExtentID]tombstone)
	b, err := e.meta(keyHorizon)
	switch {
	case err != nil:
		return err
	case len(b) == 8:
		e.graveyard.horizon = time.UnixMilli(int64(binary.LittleEndian.Uint64(b)))
	case b != nil:
		return damagedDatabase(e.dir, core.Errorf(core.CodeCorrupt, "the horizon of removed extents has %d bytes", len(b)))
	}
	if e.graveyard.lost, err = e.lostUntil(); err != nil {
		return err
	}
	if e.opensFrom = e.graveyard.lost; e.graveyard.lost.After(e.graveyard.horizon) {
		e.graveyard.horizon = e.graveyard.lost
	}
	iter, err := e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixTombstone}, UpperBound: []byte{prefixTombstone + 1}})
	if err != nil {
		return openError(e.dir, err)
	}
	defer iter.Close()
	for iter.First(); iter.Valid(); iter.Next() {
		id, err := core.IDFromBytes(iter.Key()[1:])
		if err != nil {
			return damagedDatabase(e.dir, core.Errorf(core.CodeCorrupt, "key of a tombstone: %w", err))
		}
		if err := e.graveyard.load(core.ExtentID{ID: id}, iter.Value()); err != nil {
			return damagedDatabase(e.dir, err)
		}
	}
	if err := iter.Error(); err != nil {
		return openError(e.dir, err)
	}
	slices.SortFunc(e.graveyard.order, func(a, b grave) int { return a.removed.Compare(b.removed) })
	return nil
}
