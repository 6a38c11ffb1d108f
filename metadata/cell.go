package metadata

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/columbamq/columba/core"
)

// Grace is the time for which a removed or expired row is remembered, so that an older Put that arrives late does not
// bring it back.
const Grace = 24 * time.Hour

// Cell is the form in which an embedded store keeps a row. It implements the rules of change, so that stores only keep
// bytes. The zero Cell is a row that never existed.
type Cell struct {
	Value   []byte
	Version Version // CAS tables; 0 = none
	Written int64   // Put tables: µs since 1970 of the last Put or Remove
	Expires int64   // µs since 1970 from which on the row is gone, 0 = for ever; of a removed row: when that was done
	Removed bool
}

// Put is the cell of a Put at that time, seen by the store's clock now. ttl 0 = for ever.
func Put(value []byte, at time.Time, ttl time.Duration, now time.Time) Cell {
	c := Cell{Value: value, Written: at.UnixMicro()}
	if ttl > 0 {
		c.Expires = now.Add(ttl).UnixMicro()
	}
	return c
}

// Removal is the cell of a Remove at that time, seen by the store's clock now.
func Removal(at, now time.Time) Cell {
	return Cell{Written: at.UnixMicro(), Expires: now.UnixMicro(), Removed: true}
}

// None reports whether c is a row that never existed.
func (c Cell) None() bool { return c.Version == 0 && c.Written == 0 && c.Expires == 0 && !c.Removed }

// Live reports whether a reader sees the row at now.
func (c Cell) Live(now time.Time) bool {
	return !c.None() && !c.Removed && (c.Expires == 0 || now.UnixMicro() < c.Expires)
}

// SweepAt is the time from which the cell may be forgotten; ok is false if it must be kept.
func (c Cell) SweepAt() (at time.Time, ok bool) {
	if c.Expires == 0 {
		return time.Time{}, false
	}
	return time.UnixMicro(c.Expires).Add(Grace), true
}

// Row returns the cell as a row for readers; it shares Value.
func (c Cell) Row(k Key) Row {
	r := Row{Key: k, Value: c.Value, Version: c.Version}
	if c.Version == 0 {
		r.Written = time.UnixMicro(c.Written)
	}
	return r
}

// Wins reports whether Put cell c replaces old: the later timestamp; at equal ones a removal, then the larger bytes.
func (c Cell) Wins(old Cell) bool {
	switch {
	case old.None():
		return true
	case c.Written != old.Written:
		return c.Written > old.Written
	case c.Removed || old.Removed:
		return c.Removed && !old.Removed
	}
	return bytes.Compare(c.Value, old.Value) > 0
}

// Inserted is the cell after an Insert over c, seen by the store's clock now; first is the row's first version, see
// Versions.
func (c Cell) Inserted(t Table, k Key, value []byte, first Version, now time.Time) (Cell, error) {
	if c.Live(now) {
		return c, core.Errorf(core.CodeExists, "%s %s exists", t.Name, clip(k.Row))
	}
	return Cell{Value: value, Version: max(first, c.Version+1)}, nil
}

// Updated is the cell after an Update over c, seen by the store's clock now. ttl 0 = for ever.
func (c Cell) Updated(t Table, k Key, old Version, value []byte, ttl time.Duration, now time.Time) (Cell, error) {
	if err := c.at(t, k, old, now); err != nil {
		return c, err
	}
	next := Cell{Value: value, Version: old + 1}
	if ttl > 0 {
		next.Expires = now.Add(ttl).UnixMicro()
	}
	return next, nil
}

// Deleted is the cell after a Delete over c, seen by the store's clock now.
func (c Cell) Deleted(t Table, k Key, old Version, now time.Time) (Cell, error) {
	return Cell{}, c.at(t, k, old, now)
}

func (c Cell) at(t Table, k Key, old Version, now time.Time) error {
	switch {
	case !c.Live(now):
		return NoRow(t, k)
	case c.Version != old:
		return core.Errorf(core.CodeConflict, "%s %s is at version %d, not %d", t.Name, clip(k.Row), c.Version, old)
	}
	return nil
}

// NoRow returns the error for a row that does not exist, CodeNotFound.
func NoRow(t Table, k Key) error {
	return core.Errorf(core.CodeNotFound, "%s %s not found", t.Name, clip(k.Row))
}

// The first byte of an encoded cell.
const (
	cellCAS byte = iota + 1
	cellPut
	cellRemoved
	cellEnds // CAS, with an end
)

// Append encodes c after b: kind, then version, or (version, expires), or (written, expires) as varints, then the
// value.
func (c Cell) Append(b []byte) []byte {
	switch {
	case c.Version != 0 && c.Expires != 0:
		b = binary.AppendVarint(binary.AppendUvarint(append(b, cellEnds), uint64(c.Version)), c.Expires)
	case c.Version != 0:
		b = binary.AppendUvarint(append(b, cellCAS), uint64(c.Version))
	case c.Removed:
		b = binary.AppendVarint(binary.AppendVarint(append(b, cellRemoved), c.Written), c.Expires)
	default:
		b = binary.AppendVarint(binary.AppendVarint(append(b, cellPut), c.Written), c.Expires)
	}
	return append(b, c.Value...)
}

// DecodeCell is the reverse of Append; the value shares b. CodeCorrupt.
func DecodeCell(b []byte) (Cell, error) {
	if len(b) < 2 {
		return Cell{}, damaged(b)
	}
	kind, rest := b[0], b[1:]
	if kind == cellCAS || kind == cellEnds {
		v, n := binary.Uvarint(rest)
		if n <= 0 || v == 0 {
			return Cell{}, damaged(b)
		}
		if kind == cellCAS {
			return Cell{Version: Version(v), Value: rest[n:]}, nil
		}
		expires, m := binary.Varint(rest[n:])
		if m <= 0 || expires == 0 {
			return Cell{}, damaged(b)
		}
		return Cell{Version: Version(v), Expires: expires, Value: rest[n+m:]}, nil
	}
	if kind != cellPut && kind != cellRemoved {
		return Cell{}, damaged(b)
	}
	written, n := binary.Varint(rest)
	if n <= 0 {
		return Cell{}, damaged(b)
	}
	expires, m := binary.Varint(rest[n:])
	if m <= 0 {
		return Cell{}, damaged(b)
	}
	return Cell{Written: written, Expires: expires, Removed: kind == cellRemoved, Value: rest[n+m:]}, nil
}

func damaged(b []byte) error {
	return core.Errorf(core.CodeCorrupt, "metadata row of %d bytes is damaged", len(b))
}
