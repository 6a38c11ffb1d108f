package extentlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/columbamq/columba/core"
)

const repackName = "repack.sst"

var (
	// errMoveLater says that a seal takes batches away, or that the turn is over.
	errMoveLater = errors.New("the batches cannot be moved now")
	// errCutsWait ends a turn.
	errCutsWait = errors.New("many cuts wait for their turn")
	// errLeaving says that an extent of the run is being removed, which may last.
	errLeaving = errors.New("an extent of the batches is being removed")
)

// moveRun moves the batches between two keys, or the first of them, to a table of its own, which replaces their range
// in one step of the database. It returns where the rest begins, and how many bytes were moved.
//
//  1. The move is registered, unless a removal or truncation in its range is staged and not done. Each that is staged
//     from now on finds it. Those before are in the database.
//  2. Their deletions are flushed.
//  3. The batches are copied. Only the keeper, which calls this, puts batches into the database; so none is added.
//  4. Deletions that came meanwhile are flushed: whoever reads would wait for that in the next step.
//  5. The new table replaces the range, unless a truncation has spoiled the copy. None is staged meanwhile.
func (j *journal) moveRun(r run) (to []byte, moved int64, err error) {
	e := j.e
	if err := e.refusing(); err != nil {
		return nil, 0, err
	}
	m, err := e.moves.begin(r.from, r.to)
	if err != nil {
		return nil, 0, err
	}
	defer e.moves.end(m)
	if err := j.flushDeletions(); err != nil {
		return nil, 0, err
	}
	name := e.files.PathJoin(e.dir, drainDir, repackName)
	to, moved, err = e.copyRun(name, r)
	if err == nil {
		err = j.flushDeletions()
	}
	if err != nil {
		return nil, 0, errors.Join(err, e.removeIfThere(name))
	}
	var tables []string
	if moved > 0 {
		tables = append(tables, name)
	}
	if err := e.guarded(func() error { return e.replace(m, pebble.KeyRange{Start: r.from, End: to}, tables) }); err != nil {
		return nil, 0, errors.Join(core.Errorf(core.CodeUnavailable, "move batches to a new table: %w", err), e.removeIfThere(name))
	}
	return to, moved, nil
}

// replace puts the table of a move, if there is one, in the place of all that the database has in its range.
func (e *Engine) replace(m *move, span pebble.KeyRange, tables []string) error {
	done, err := e.turnWithin(replaceWait)
	if err != nil {
		return err
	}
	defer done()
	return e.excisingTables(span, func() error {
		if !e.moves.change(m) {
			return errMoveLater
		}
		defer e.moves.beginChange()()
		_, err := e.db.IngestAndExcise(context.Background(), tables, nil, nil, span)
		return err
	})
}

// copyRun writes a table of the batches of a run; none when there are no batches. Behind runMost bytes, or
// copyMost, the copy ends at to.
func (e *Engine) copyRun(name string, r run) (to []byte, moved int64, err error) {
	var w *sstable.Writer
	defer func() {
		if w != nil {
			err = errors.Join(err, w.Close()) // syncs the table
		}
	}()
	var failed error
	began := time.Now()
	to, err = e.walk(r.from, r.to, func(key, value []byte) bool {
		if moved >= runMost || w != nil && time.Since(began) > copyMost {
			return false
		}
		if w == nil {
			if w, failed = e.newTable(name, e.db); failed != nil {
				return false
			}
		}
		failed = w.Set(key, value)
		moved += int64(len(value))
		return failed == nil
	})
	return to, moved, errors.Join(err, failed)
}

const (
	// copyMost is how long a run copies: appends may wait for it.
	copyMost = 100 * time.Millisecond
	// pieceMost is how long cuts wait for reads of the keeper, but for the first one.
	pieceMost = 20 * time.Millisecond
	// The keeper waits so long for its turn: appends may wait for the keeper, and a copy that is made should not be lost.
	walkWait    = 100 * time.Millisecond
	replaceWait = time.Second
)

// walk goes through the live batches from one key on, up to before another one, until use returns false. next is the
// key at which it did, or to; with an error, one up to which use had all.
func (e *Engine) walk(from, to []byte, use func(key, value []byte) bool) (next []byte, err error) {
	next = from
	for on := true; on && bytes.Compare(next, to) < 0; {
		at, more, err := e.walkPiece(next, to, use)
		if err != nil {
			return next, err
		}
		next, on = at, more
	}
	return next, nil
}

// walkPiece is walk for pieceMost; on: it goes on. It has the turn of cuts, because a read that fails during another
// cut fails the log.
func (e *Engine) walkPiece(from, to []byte, use func(key, value []byte) bool) (next []byte, on bool, err error) {
	done, err := e.turnWithin(walkWait)
	if err != nil {
		return nil, false, err
	}
	defer done()
	iter, err := e.db.NewIter(between(from, to))
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	ok := iter.First()
	began := time.Now()
	for ; ok; ok = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return nil, false, err
		}
		if time.Since(began) > pieceMost && !bytes.Equal(iter.Key(), from) {
			return slices.Clone(iter.Key()), true, nil
		}
		if !use(iter.Key(), value) {
			return slices.Clone(iter.Key()), false, nil
		}
	}
	return to, true, iter.Error()
}

// between are the options of an iterator over all batches from one key on, up to before another one. If all are of one
// extent, no blocks of others are read: they may be damaged.
func between(from, to []byte) *pebble.IterOptions {
	o := &pebble.IterOptions{LowerBound: from, UpperBound: to}
	first, base := placeOf(from)
	if last, behind := placeOf(to); last == first {
		o.PointKeyFilters = within(first, base, behind)
	}
	return o
}

// placeOf is the extent and the seq that a key of batches, or a shorter one, begins with.
func placeOf(key []byte) (id core.ExtentID, seq core.Seq) {
	var padded [batchKeyLen]byte
	copy(padded[:], key)
	return core.ExtentID{ID: core.ID(padded[1:extentKeyLen])}, core.Seq(binary.BigEndian.Uint64(padded[extentKeyLen:]))
}

func (e *Engine) removeIfThere(name string) error {
	if err := e.files.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
