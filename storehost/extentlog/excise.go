package extentlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// edgeTries is how often the tables of a range are listed: one that is replaced meanwhile is not found.
const edgeTries = 3

// errBeside says why a range is not cut out: a table would lose what it has beside the range.
var errBeside = errors.New("a table beside a range that is to be cut out cannot be read")

// excisions cut ranges out of the tables of the database, one after another. Safe for concurrent use.
type excisions struct {
	line    chan struct{} // capacity 1: cuts wait here, but for the first, so that the keeper waits for two at most
	turn    chan struct{} // capacity 1: one cut is under way, or the keeper reads
	asked   atomic.Uint64 // cuts that were asked for
	flushed uint64        // … before the last flush of a cut; of the one that has the turn
	now     atomic.Pointer[excision]
}

// excision is a cut that is under way.
type excision struct {
	span   pebble.KeyRange
	tables []pebble.SSTableInfo // all, a moment before
}

// excising calls do, which cuts a range out of the tables of the database.
//
// Pebble keeps what a table has before the range and behind it. It looks for the last key before and the first key
// behind, and takes an error of these two reads for the end of the table: all keys on that side are lost then. So the
// blocks of these keys are read first, and the range stays in the tables if that fails. A read that fails only later
// fails the log, before Pebble can write down what is left of the table.
//
// Rows that wait in memory are written to tables first: else the range is cut out by a later flush, or appends wait
// for one. Cuts that wait for their turn share a flush.
func (e *Engine) excising(span pebble.KeyRange, do func() error) error {
	x := &e.excisions
	asked := x.asked.Add(1)
	select {
	case x.line <- struct{}{}:
	case <-e.failed:
		return e.refusing()
	}
	select {
	case x.turn <- struct{}{}:
		<-x.line
		defer func() { <-x.turn }()
	case <-e.failed:
		<-x.line
		return e.refusing()
	}
	if x.flushed < asked {
		all := x.asked.Load()
		if err := e.db.Flush(); err != nil {
			return err
		}
		x.flushed = all
	}
	return e.excisingTables(span, do)
}

// turnWithin waits for the turn, which ends when done is called, for so long at most. errCutsWait: it did not come.
func (e *Engine) turnWithin(wait time.Duration) (done func(), err error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case e.excisions.turn <- struct{}{}:
		return func() { <-e.excisions.turn }, nil
	case <-timer.C:
		return nil, errCutsWait
	case <-e.failed:
		return nil, e.refusing()
	}
}

// excisingTables is for the one that has the turn.
func (e *Engine) excisingTables(span pebble.KeyRange, do func() error) error {
	tables, err := e.readEdges(span)
	if err != nil {
		return fmt.Errorf("%w: %w", errBeside, err)
	}
	x := &e.excisions
	x.now.Store(&excision{span, tables})
	defer x.now.Store(nil)
	return do()
}

// readEdges reads both sides of a range in each table that goes beyond it, and answers all tables.
func (e *Engine) readEdges(span pebble.KeyRange) (all []pebble.SSTableInfo, err error) {
	for range edgeTries {
		levels, failed := e.db.SSTables()
		if failed != nil {
			return nil, failed
		}
		all, err = slices.Concat(levels...), nil
		for _, t := range all {
			if isShortened(t.Smallest.UserKey, t.Largest.UserKey, span) {
				err = errors.Join(err, e.readEdgesOf(t, span))
			}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return all, err
}

// isShortened reports whether a table with these first and last keys may have some both in a range and beside it.
func isShortened(first, last []byte, span pebble.KeyRange) bool {
	if bytes.Compare(last, span.Start) < 0 || bytes.Compare(first, span.End) >= 0 {
		return false
	}
	return bytes.Compare(first, span.Start) < 0 || bytes.Compare(last, span.End) >= 0
}

// readEdgesOf reads what Pebble does: the deletions of ranges, and on each side that is left the key next to the range,
// and how large that side is.
func (e *Engine) readEdgesOf(t pebble.SSTableInfo, span pebble.KeyRange) error {
	r, err := openTable(e.fs, e.fs.PathJoin(e.dir, databaseDir, tableName(t)), e.readTables)
	if err != nil {
		return err
	}
	defer r.Close()
	deletions, err := r.NewRawRangeDelIter(context.Background(), sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if err != nil {
		return err
	}
	if deletions != nil {
		deletions.Close()
	}
	first, last := t.Smallest.UserKey, t.Largest.UserKey
	it, err := r.NewIter(sstable.NoTransforms, first, append(slices.Clone(last), 0), sstable.AssertNoBlobHandles)
	if err != nil {
		return err
	}
	var errs []error
	if bytes.Compare(first, span.Start) < 0 {
		it.SeekLT(span.Start, 0)
		_, err := r.EstimateDiskUsage(first, span.Start, sstable.NoReadEnv)
		errs = append(errs, it.Error(), err)
	}
	if bytes.Compare(last, span.End) >= 0 {
		it.SeekGE(span.End, 0)
		_, err := r.EstimateDiskUsage(span.End, last, sstable.NoReadEnv)
		errs = append(errs, it.Error(), err)
	}
	return errors.Join(append(errs, it.Close())...)
}

func tableName(t pebble.SSTableInfo) string { return fmt.Sprintf("%06d.sst", uint64(t.BackingSSTNum)) }

// mayRead reports whether Pebble may read the file of a table for the cut. A file that is in no table came later.
func (x *excision) mayRead(name string) bool {
	known := false
	for _, t := range x.tables {
		if tableName(t) == name {
			if known = true; isShortened(t.Smallest.UserKey, t.Largest.UserKey, x.span) {
				return true
			}
		}
	}
	return !known
}

// tableDamaged is told of each read of a table that meets damage. It may be called under Pebble's locks.
func (e *Engine) tableDamaged(info pebble.DataCorruptionInfo) {
	e.log.Error("damaged table", "path", info.Path, "err", info.Details)
	if x := e.excisions.now.Load(); x != nil && isShortened(info.Bounds.Start, info.Bounds.End.Key, x.span) {
		e.failExcision(info.Details)
	}
}

// tableUnread is told of each read of a table that fails. It may be called under Pebble's locks. A table that Pebble
// has not taken yet has no range to lose.
func (e *Engine) tableUnread(name string, err error) {
	x := e.excisions.now.Load()
	if x != nil && x.mayRead(path.Base(name)) && path.Base(path.Dir(name)) != drainDir {
		e.failExcision(err)
	}
}

// failExcision fails the log before Pebble can write down what is left of a table.
func (e *Engine) failExcision(err error) {
	e.gate.Shut()
	e.fail(fmt.Errorf("read a table while a range is cut out of it: %w", err))
}
