package extentlog

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
)

// loadRescue finds out what a rescue left to do. It returns up to which group the log was durable.
func (p *replay) loadRescue(there uint64) (durable uint64, err error) {
	value, err := p.e.meta(keyRescued)
	if err != nil || len(value) != 9 {
		return there, err
	}
	p.rescued, p.damaged = value[8], true
	if p.rescued == rescuedRows {
		p.told = make(map[string]struct{})
	}
	return max(there, binary.LittleEndian.Uint64(value)), nil
}

// tell notes which extents the rows of a group speak of: they are as they were, whatever the database lost.
func (p *replay) tell(rows []byte) error {
	if p.told == nil {
		return nil
	}
	return eachChange(rows, func(kind pebble.InternalKeyKind, key, _ []byte) error {
		if len(key) == extentKeyLen && (key[0] == prefixRow || key[0] == prefixPosition) {
			p.told[string(key)] = struct{}{}
		}
		return nil
	})
}

// settleRescue settles what is in doubt after a rescue, once all rows of the log are applied. The index of each timer
// extent is made anew. An extent whose row and position did not both come from the log may be known by older ones:
//
//   - One without an end is quarantined, as in lose.
//   - One with an end has that for ever. Its position is at the end, if all batches from there on are here, and the last
//     one has the checksum of the end. Else the position is as it was found, and the extent counts as incomplete.
//
// So a rescue may quarantine extents that lack nothing. It never hides a record that was acknowledged.
func (p *replay) settleRescue() error {
	e := p.e
	if p.rescued != rescuedRows {
		return nil
	}
	quarantined := 0
	b := e.db.NewBatch()
	defer func() { b.Close() }()
	err := e.eachRow(func(r row) error {
		suspect, err := p.settleExtent(b, r)
		if suspect {
			quarantined++
		}
		if err != nil || b.Len() < drainPiece {
			return err
		}
		err = errors.Join(e.db.Apply(b, pebble.NoSync), b.Close())
		b = e.db.NewBatch()
		return err
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
		b.Set(keyRescued, salvageMark(0, rescuedCut), nil),
		e.db.Apply(b, pebble.NoSync),
	); err != nil {
		return openError(e.dir, err)
	}
	e.quarantined.Add(uint64(quarantined))
	e.log.Error("rows of a damaged database may be lost: extents without an end are quarantined, and no new ones are opened for a while", "dir", e.dir, "quarantined", quarantined, "opens_after", lossMargin)
	return nil
}

// settleExtent settles one extent.
func (p *replay) settleExtent(b *pebble.Batch, r row) (suspect bool, err error) {
	key := extentKey(prefixPosition, r.Extent.ID)
	value, err := p.e.meta(key)
	if err != nil {
		return false, err
	}
	at, wrong := decodePosition(value)
	was := at
	if wrong != nil {
		at, was = position{}, position{last: 1} // it is written
	}
	_, row := p.told[string(extentKey(prefixRow, r.Extent.ID))]
	_, known := p.told[string(key)]
	switch {
	case r.Sealed:
		if !known || at.last > r.L {
			at, err = p.e.endOf(r, at)
		}
	case !row || !known || wrong != nil:
		if suspect = !r.Diverged; suspect {
			r.suspect()
			err = setRow(b, r)
		}
	}
	at.indexed = 0
	if err != nil || at == was {
		return suspect, err
	}
	d := durable{row: r, position: at}
	value = make([]byte, d.positionLen())
	d.position.put(value)
	return suspect, b.Set(key, value, nil)
}

// endOf is the position of an extent that has an end, and whose position may be an older one.
func (e *Engine) endOf(r row, at position) (position, error) {
	if at.last == r.L && at.checksum == r.SealSum {
		return at, nil
	}
	whole := at.last > r.L || r.L == 0 // the seal cut it off
	if !whole && at.last < r.L {
		var err error
		if whole, err = e.goesOn(r, at.last+1); err != nil {
			return at, err
		}
	}
	if !whole {
		if at.last == r.L { // with another checksum
			at = position{}
		}
		return at, nil
	}
	bytes, err := e.db.EstimateDiskUsage(extentKey(prefixBatch, r.Extent.ID), afterExtent(prefixBatch, r.Extent.ID))
	if err != nil && !pebble.IsCorruptionError(err) {
		return at, openError(e.dir, err)
	}
	return position{last: r.L, committed: min(at.committed, r.L), bytes: max(bytes, at.bytes), checksum: r.SealSum}, nil
}

// goesOn reports whether the database has all batches of an extent from a seq on, up to its end.
func (e *Engine) goesOn(r row, from core.Seq) (bool, error) {
	x := &extent{id: r.Extent.ID}
	iter, err := e.batches(x)
	if err != nil {
		return false, err
	}
	defer iter.Close()
	for ok := iter.SeekGE(batchKey(x.id, from)); ok; ok = iter.Next() {
		b, err := current(x, iter)
		switch {
		case err != nil && core.CodeOf(err) != core.CodeCorrupt:
			return false, err
		case err != nil || b.Base != from || b.Last() > r.L:
			return false, nil
		case b.Last() == r.L:
			return b.Checksum == r.SealSum, nil
		}
		from = b.Last() + 1
	}
	if err := iter.Error(); err != nil && !pebble.IsCorruptionError(err) {
		return false, diskError(x, err)
	}
	return false, nil
}

// endRescue notes that nothing is left to do.
func (p *replay) endRescue() error {
	if p.rescued == 0 {
		return nil
	}
	if err := p.e.db.Delete(keyRescued, pebble.NoSync); err != nil {
		return openError(p.e.dir, err)
	}
	return nil
}
