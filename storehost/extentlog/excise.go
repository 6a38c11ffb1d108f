package extentlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// edgeTries is how often the tables of a range are listed: one that is replaced meanwhile is not found.
const edgeTries = 3

// excising calls do, which cuts a range out of the tables of the database.
//
// Pebble keeps what a table has before the range and behind it. It looks for the last key before and the first key
// behind, and takes an error of these two reads for the end of the table: all keys on that side are lost then. So the
// blocks of these keys are read first, and the range stays in the tables if that fails. A read that fails only later
// fails the log, before Pebble can write down what is left of the table.
//
// Rows that wait in memory are written to tables first: else Pebble may cut the range out after do.
func (e *Engine) excising(span pebble.KeyRange, do func() error) error {
	if err := e.db.Flush(); err != nil {
		return err
	}
	if err := e.readEdges(span); err != nil {
		return fmt.Errorf("read the tables beside a range that is to be cut out: %w", err)
	}
	defer e.excisions.begin(span)()
	return do()
}

// readEdges reads both sides of a range in each table that goes beyond it.
func (e *Engine) readEdges(span pebble.KeyRange) (err error) {
	for range edgeTries {
		levels, failed := e.db.SSTables(pebble.WithKeyRangeFilter(span.Start, span.End))
		if err = failed; err != nil {
			return err
		}
		for _, t := range slices.Concat(levels...) {
			if exceeds(t.Smallest.UserKey, t.Largest.UserKey, span) {
				err = errors.Join(err, e.readEdgesOf(t, span))
			}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// exceeds reports whether a table with these first and last keys may have some beside a range.
func exceeds(first, last []byte, span pebble.KeyRange) bool {
	return bytes.Compare(first, span.Start) < 0 || bytes.Compare(last, span.End) >= 0
}

func (e *Engine) readEdgesOf(t pebble.SSTableInfo, span pebble.KeyRange) error {
	name := e.fs.PathJoin(e.dir, databaseDir, fmt.Sprintf("%06d.sst", uint64(t.BackingSSTNum)))
	r, err := openTable(e.fs, name, e.readTables)
	if err != nil {
		return err
	}
	defer r.Close()
	it, err := r.NewIter(sstable.NoTransforms, t.Smallest.UserKey, append(slices.Clone(t.Largest.UserKey), 0), sstable.AssertNoBlobHandles)
	if err != nil {
		return err
	}
	it.SeekLT(span.Start, 0)
	before := it.Error()
	it.SeekGE(span.End, 0)
	return errors.Join(before, it.Error(), it.Close())
}

// excisions are the ranges that are being cut out. Safe for concurrent use.
type excisions struct {
	mu struct {
		sync.Mutex
		spans []pebble.KeyRange
	}
}

func (x *excisions) begin(span pebble.KeyRange) (end func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.spans = append(x.mu.spans, span)
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		at := slices.IndexFunc(x.mu.spans, func(s pebble.KeyRange) bool { return &s.Start[0] == &span.Start[0] })
		x.mu.spans = slices.Delete(x.mu.spans, at, at+1)
	}
}

// underway reports whether a range is being cut out.
func (x *excisions) underway() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.mu.spans) > 0
}

// shortens reports whether a range is being cut out of a table with these first and last keys, and leaves a part of it.
func (x *excisions) shortens(first, last []byte) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.ContainsFunc(x.mu.spans, func(s pebble.KeyRange) bool {
		apart := bytes.Compare(last, s.Start) < 0 || bytes.Compare(first, s.End) >= 0
		return !apart && exceeds(first, last, s)
	})
}

// tableDamaged is told of each read of a table that meets damage. It may be called under Pebble's locks.
func (e *Engine) tableDamaged(info pebble.DataCorruptionInfo) {
	e.log.Error("damaged table", "path", info.Path, "err", info.Details)
	if e.excisions.shortens(info.Bounds.Start, info.Bounds.End.Key) {
		e.failExcision(info.Details)
	}
}

// tableUnread is told of each read of a table that fails. It may be called under Pebble's locks.
func (e *Engine) tableUnread(err error) {
	if e.excisions.underway() {
		e.failExcision(err)
	}
}

// failExcision fails the log before Pebble can write down what is left of a table.
func (e *Engine) failExcision(err error) {
	e.gate.Shut()
	e.fail(fmt.Errorf("read a table while a range is cut out of it: %w", err))
}
