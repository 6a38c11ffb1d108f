package extentlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// isDamage reports whether an error speaks of the bytes of a table, and not of the disk or of the process.
func isDamage(err error) bool {
	var errno syscall.Errno
	return err != nil && (pebble.IsCorruptionError(err) || !errors.As(err, &errno))
}

// cut is a range that was deleted, or that a table covers: from … to, with to or without it.
type cut struct {
	from, to []byte
	number   uint64 // of the deletion in the order of all changes
}

func (c cut) overlaps(d cut) bool {
	return bytes.Compare(c.from, d.to) <= 0 && bytes.Compare(d.from, c.to) <= 0
}

// removes reports whether the deletion came after a change of a key in its range.
func (c cut) removes(key pebble.InternalKey) bool {
	return uint64(key.SeqNum()) < c.number && bytes.Compare(c.from, key.UserKey) <= 0 && bytes.Compare(key.UserKey, c.to) < 0
}

// keyOfExtent is the part of a key of a record that names the extent; "" if it has none.
func keyOfExtent(key []byte) string {
	if len(key) < extentKeyLen {
		return ""
	}
	return string(key[:extentKeyLen])
}

// cutsIn reads the deletions of ranges in a table.
func cutsIn(r *sstable.Reader) (all []cut, err error) {
	iter, err := r.NewRawRangeDelIter(context.Background(), sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if err != nil || iter == nil {
		return nil, err
	}
	defer iter.Close()
	for span, err := iter.First(); ; span, err = iter.Next() {
		if err != nil || span == nil {
			return all, err
		}
		for _, k := range span.Keys {
			all = append(all, cut{bytes.Clone(span.Start), bytes.Clone(span.End), uint64(k.SeqNum())})
		}
	}
}

// isDrained reports whether a table has nothing but batches, each once, as a drain makes it: without numbers that tell
// which change came later.
func isDrained(r *sstable.Reader) bool {
	all, err := ends(r)
	return err == nil && all.from != nil && all.number == 0 && all.from[0] == prefixBatch && all.to[0] == prefixBatch
}

// ends are the first and the last key of a table, and the higher one of their numbers; empty if there is none.
func ends(r *sstable.Reader) (all cut, err error) {
	iter, err := r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if err != nil {
		return all, err
	}
	if kv := iter.First(); kv != nil {
		all.from, all.number = bytes.Clone(kv.K.UserKey), uint64(kv.K.SeqNum())
		if kv = iter.Last(); kv != nil {
			all.to, all.number = bytes.Clone(kv.K.UserKey), max(all.number, uint64(kv.K.SeqNum()))
		}
	}
	return all, errors.Join(iter.Error(), iter.Close())
}

// eachKey reads a table: up to the first block that cannot be read, and from behind the last one on. damage is the
// error of such a block, err any other one.
func eachKey(r *sstable.Reader, use func(key pebble.InternalKey, value []byte) error) (damage, err error) {
	var before []byte // the last key before the damage
	read := func(from *pebble.InternalKey) error {
		iter, err := r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
		if err != nil {
			damage = err
			return nil
		}
		kv := iter.First()
		if from != nil {
			for kv = iter.SeekGE(from.UserKey, 0); kv != nil && bytes.Equal(kv.K.UserKey, from.UserKey) && kv.K.Trailer > from.Trailer; {
				kv = iter.Next()
			}
		}
		for ; kv != nil && err == nil; kv = iter.Next() {
			var value []byte
			if value, _, err = kv.Value(nil); err != nil {
				damage = err
				return iter.Close()
			}
			if from == nil {
				before = append(before[:0], kv.K.UserKey...)
			}
			err = use(kv.K, value)
		}
		if err == nil && damage == nil {
			damage = errors.Join(iter.Error(), iter.Close())
			return nil
		}
		_ = iter.Close() // the first error says more
		return err
	}
	if err = read(nil); err != nil || damage == nil || !isDamage(damage) {
		return nil, errors.Join(err, damage)
	}
	back, e := r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if e != nil {
		return damage, nil
	}
	var first pebble.InternalKey // behind it
	for kv := back.Last(); kv != nil && bytes.Compare(kv.K.UserKey, before) > 0; kv = back.Prev() {
		first.Trailer, first.UserKey = kv.K.Trailer, append(first.UserKey[:0], kv.K.UserKey...)
	}
	_ = back.Close() // it ends at the damage
	if first.UserKey == nil {
		return damage, nil
	}
	found := damage
	err = read(&first)
	return found, err
}

// copyTable writes the batches of a table that can be read, and were not deleted, into a new one. It returns what that
// covers.
func (w *rescueWriter) copyTable(r *sstable.Reader, name string) (all cut, err error) {
	var to *sstable.Writer
	_, err = eachKey(r, func(key pebble.InternalKey, value []byte) error {
		if key.UserKey[0] != prefixBatch || key.Kind() != pebble.InternalKeyKindSet || bytes.Equal(key.UserKey, all.to) {
			return nil
		}
		for _, c := range w.s.cuts[keyOfExtent(key.UserKey)] {
			if c.removes(key) && key.SeqNum() > 0 {
				return nil
			}
		}
		if to == nil {
			if to, err = w.s.e.newTable(name, w.db); err != nil {
				return err
			}
			all.from = bytes.Clone(key.UserKey)
		}
		all.to = append(all.to[:0], key.UserKey...)
		return to.Set(key.UserKey, value)
	})
	if to != nil {
		err = errors.Join(err, to.Close())
	}
	return all, err
}

// salvagedRow is the newest change of a row that was found.
type salvagedRow struct {
	number  uint64 // of the change; 0: it is older than all that have one, in tables made before
	table   uint64
	deleted bool
	value   []byte
}

// salvagedRows are the rows of all tables.
type salvagedRows struct {
	newest map[string]salvagedRow
}

func newSalvagedRows() salvagedRows { return salvagedRows{newest: make(map[string]salvagedRow)} }

// add takes a row, unless a newer one is known. Compaction takes the number of a change away when nothing older is
// left. A change with a number is newer then, unless its table was made before: a compaction may have replaced that.
func (s *salvagedRows) add(key pebble.InternalKey, value []byte, table uint64) {
	fresh := salvagedRow{number: uint64(key.SeqNum()), table: table, deleted: key.Kind() != pebble.InternalKeyKindSet}
	was, some := s.newest[string(key.UserKey)]
	switch {
	case !some:
	case was.number == 0 && fresh.number == 0, was.number > 0 && fresh.number == 0: // tables come in the order of their numbers
		if table == was.table {
			return
		}
	case was.number >= fresh.number:
		return
	}
	fresh.value = bytes.Clone(value)
	s.newest[string(key.UserKey)] = fresh
}

// get is nil when there is no such row.
func (s *salvagedRows) get(key []byte) []byte {
	if r, some := s.newest[string(key)]; some && !r.deleted {
		return r.value
	}
	return nil
}

func (s *salvagedRows) number(key []byte) uint64 {
	if b := s.get(key); len(b) >= 8 {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// extents counts the extents with a row.
func (s *salvagedRows) extents() (n int) {
	for key, r := range s.newest {
		if key[0] == prefixRow && !r.deleted {
			n++
		}
	}
	return n
}

// identify puts the rows in that a store cannot be without. If they are lost, the file beside the database has them.
func (s *salvagedRows) identify(e *Engine) error {
	is := essentials{owner: s.get(keyIdentity), secret: s.get(keySecret)}
	if format := s.get(keyFormat); len(format) == 1 {
		is.format = format[0]
	}
	if kept, ok, err := e.keptIdentity(); err != nil {
		return err
	} else if ok && !is.complete() {
		is = kept
	}
	if err := e.checkIdentity(is); err != nil {
		return err
	}
	if !is.complete() { // it is of a format whose log is in the database
		return damagedStore(e.dir, errors.New("it has no key of its log"))
	}
	for key, value := range map[string][]byte{string(keyFormat): {is.format}, string(keyIdentity): is.owner, string(keySecret): is.secret} {
		s.newest[key] = salvagedRow{value: value}
	}
	return nil
}

// write writes all rows, and what the next start has to do: it applies all rows of the log anew that are behind the
// part that was drained. A row that cannot be decoded counts as lost.
func (s *salvagedRows) write(db *pebble.DB) error {
	durable := max(s.number(keyApplied), s.number(keyDrained), s.number(keyRescued))
	s.newest[string(keyApplied)] = salvagedRow{value: binary.LittleEndian.AppendUint64(nil, s.number(keyDrained))}
	s.newest[string(keyRescued)] = salvagedRow{value: salvageMark(durable, rescuedRows)}
	delete(s.newest, string(keyScrub)) // all extents are verified soon
	b := db.NewBatch()
	defer func() { b.Close() }()
	for key, r := range s.newest {
		if r.deleted || s.buried(key, r) || !decodable(key, r.value) {
			continue
		}
		if err := b.Set([]byte(key), r.value, nil); err != nil {
			return err
		}
		if b.Len() < drainPiece {
			continue
		}
		if err := errors.Join(db.Apply(b, pebble.NoSync), b.Close()); err != nil {
			return err
		}
		b = db.NewBatch()
	}
	return db.Apply(b, pebble.NoSync)
}

// buried reports whether a row is of an extent that was removed since, or a tombstone of one that is back. When their
// numbers do not tell which is newer, the row stays: a removed extent that comes back is removed again.
func (s *salvagedRows) buried(key string, r salvagedRow) bool {
	switch key[0] {
	case prefixRow:
		return r.before(s.newest[string(byte(prefixTombstone))+key[1:]])
	case prefixTombstone:
		row, some := s.newest[string(byte(prefixRow))+key[1:]]
		return some && !row.deleted && !row.before(r)
	}
	return false
}

// before reports whether another change certainly came later, and made something.
func (r salvagedRow) before(other salvagedRow) bool {
	return !other.deleted && r.number > 0 && other.number > r.number
}

// decodable reports whether a start can read a row.
func decodable(key string, value []byte) bool {
	if len(key) != extentKeyLen || key[0] != prefixRow {
		return true
	}
	_, err := decodeRow(value)
	return err == nil
}
