package extentlog

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/ring"
)

// lossMargin is by how much the clocks of hosts that make extents may be ahead of this one's. A store takes no new
// extents for so long after it lost rows.
const lossMargin = time.Minute

const lossReason = "a part of the log that may speak of it cannot be read"

// lose notes that the rows of some groups, which were durable, cannot be read. They may have told of openings, appends,
// fences, ends and removals. So nothing of that is taken for not said:
//
//   - An extent that had no end before them is quarantined, and no verification lifts that: its bytes may be sound and yet
//     lack records that were acknowledged. No writer goes on in it, since none does after a restart.
//   - An extent that is not known may have been opened, fenced or removed by them. It is not opened any more, see horizon,
//     and when it is fenced, it counts as damaged instead of as empty, see graveyard.suspects.
//   - An extent that had an end has it for ever. If its records went with a removal, the start misses them, see give.
//   - A removal that is forgotten leaves an extent that its holders do not count, and that they remove again.
//
// All that is noted before any later group is applied.
func (p *replay) lose(from, to uint64) error {
	e := p.e
	b := e.db.NewBatch()
	defer b.Close()
	suspects := 0
	err := e.eachRow(func(r row) error {
		if r.Sealed || r.Diverged {
			return nil
		}
		suspects++
		r.suspect()
		return setRow(b, r)
	})
	if err != nil {
		return err
	}
	until, err := e.lostUntil()
	if err != nil {
		return err
	}
	if now := time.Now().Add(lossMargin); now.After(until) {
		until = now
	}
	if err := errors.Join(
		b.Set(keyLost, binary.LittleEndian.AppendUint64(nil, uint64(until.UnixMilli())), nil),
		b.Set(keyApplied, binary.LittleEndian.AppendUint64(nil, to), nil),
		e.db.Apply(b, pebble.NoSync),
	); err != nil {
		return openError(e.dir, err)
	}
	p.applied, p.damaged, p.lost = to, true, true
	p.losses = append(p.losses, ring.Damage{From: from, To: to})
	e.quarantined.Add(uint64(suspects))
	e.log.Error("a part of the log is damaged that is nowhere else: extents without an end are quarantined, and no new ones are opened for a while",
		"dir", e.dir, "from_group", from, "to_group", to, "quarantined", suspects, "opens_after", lossMargin)
	return nil
}

// suspect quarantines the extent for good: it may lack records, whatever it holds.
func (r *row) suspect() {
	r.Damaged, r.Diverged, r.Why = true, true, lossReason
}

// distrust adds to the rows of a group that what was quarantined for good stays so. The process that wrote them did not
// know of the quarantine.
func (p *replay) distrust(b *pebble.Batch, rows []byte) error {
	if !p.lost {
		return nil
	}
	removed := make(map[string]bool) // by these rows
	return eachChange(rows, func(kind pebble.InternalKeyKind, key, value []byte) error {
		if len(key) != extentKeyLen || key[0] != prefixRow {
			return nil
		}
		if removed[string(key)] = removed[string(key)] || kind == pebble.InternalKeyKindDelete; removed[string(key)] {
			return nil
		}
		was, err := p.e.meta(key)
		if err != nil || was == nil {
			return err
		}
		before, err := decodeRow(was)
		if err != nil || !before.Diverged {
			return err
		}
		after, err := decodeRow(value)
		if err != nil {
			return err
		}
		after.Damaged, after.Diverged, after.Why = true, true, before.Why
		return setRow(b, after)
	})
}

// lostUntil is up to when extents may have been made of which lost rows told; zero when none were lost.
func (e *Engine) lostUntil() (time.Time, error) {
	value, err := e.meta(keyLost)
	if err != nil || len(value) != 8 {
		return time.Time{}, err
	}
	return time.UnixMilli(int64(binary.LittleEndian.Uint64(value))), nil
}

func setRow(b *pebble.Batch, r row) error {
	value, err := r.encode()
	if err != nil {
		return err
	}
	return b.Set(extentKey(prefixRow, r.Extent.ID), value, nil)
}

// eachRow reads the rows of all extents in the database.
func (e *Engine) eachRow(use func(row) error) error {
	iter, err := e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixRow}, UpperBound: []byte{prefixRow + 1}})
	if err != nil {
		return openError(e.dir, err)
	}
	defer iter.Close()
	for iter.First(); iter.Valid(); iter.Next() {
		r, err := decodeRow(iter.Value())
		if err != nil {
			return damagedDatabase(e.dir, err)
		}
		if err := use(r); err != nil {
			return err
		}
	}
	if err := iter.Error(); err != nil {
		return openError(e.dir, err)
	}
	return nil
}

// strangers are the extents that have records in the database and no row.
func (e *Engine) strangers(iter *pebble.Iterator) (ids []core.ExtentID) {
	for _, prefix := range contents(true) {
		for ok := iter.SeekGE([]byte{prefix}); ok && iter.Key()[0] == prefix && len(iter.Key()) > extentKeyLen; {
			id := core.ExtentID{ID: core.ID(iter.Key()[1:extentKeyLen])}
			if e.mu.extents[id] == nil {
				ids = append(ids, id)
			}
			ok = iter.SeekGE(afterExtent(prefix, id))
		}
	}
	return ids
}

// lateOpening refuses to open extents for a while after rows were lost, so that the horizon is behind all extents that
// they may have told of.
func (e *Engine) lateOpening() error {
	if wait := time.Until(e.opensFrom); wait > 0 {
		return core.Errorf(core.CodeUnavailable, "the store lost a part of its log and opens no extents for %s; use another store", wait.Round(time.Second))
	}
	return nil
}

// suspects reports whether a store that does not know an extent may have had it before it lost rows. One that was
// removed since, by a tombstone, comes back by a newer decision.
func (y *graveyard) suspects(x core.Extent, is core.StoreIdentity) bool {
	if _, removed := y.graves[x.ID]; removed || y.lost.IsZero() || x.ID.Time().After(y.lost) {
		return false
	}
	disk := x.Disk(is.Store)
	return slices.Contains(x.Replicas, is.Store) && (disk.IsZero() || disk == is.Disk)
}
