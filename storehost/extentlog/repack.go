package extentlog

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/enginefs"
)

// Tables whose records are mostly of removed extents are repacked: the other records move to new tables, and the old
// files go. A table with one live batch would keep all its space otherwise.
const (
	// garbageShare is the part of the disk that dead records may take in tables with live ones: one in so many bytes.
	garbageShare = 32
	maxGarbage   = 1 << 30 // on a file system that cannot say its size
	mostLive     = 50      // percent of a table that is repacked
	mostLiveFull = 80      // … on a disk that is nearly full, where moving four bytes may free one
	// leastRepack is how many live bytes one turn may move at least.
	leastRepack = 4 << 20
	// deletionPauses of a millisecond go before a drain, at most, while files are to be deleted.
	deletionPauses = 100
	leastAwaited   = 256 << 10 // bytes of these files
	repackName     = "repack.sst"
)

// repack moves live records out of tables that are half garbage or more, in the order of what that costs, until little
// garbage is left, or as much is moved as a drain writes. So it moves at most one byte for each that it frees. It runs
// between drains, because a drain must not put batches where others are being moved.
func (j *journal) repack() {
	e := j.e
	if e.refusing() != nil || isClosed(e.settled) {
		return
	}
	m := e.db.Metrics()
	e.merger.look(m.Levels[0].TablesCount, m.Levels[len(m.Levels)-1].TablesCount, int64(e.space.fill().tables()))
	garbage := int64(m.Table.BackingTableSize) - int64(m.VirtualSize())
	most, percent := j.keeper.garbage.Load(), j.keeper.sparse.Load()
	if e.space.nearlyFull() {
		most, percent = most/4, max(percent, mostLiveFull)
	}
	if garbage <= most {
		return
	}
	budget := max(leastRepack, j.keeper.most/int64(j.keeper.free.Load()))
	freed, err := e.repackTables(percent, garbage-most, budget)
	if err != nil && e.refusing() == nil {
		e.log.Error("tables with records of removed extents cannot be repacked: these keep their space", "err", err)
	}
	if freed > 0 {
		e.space.look(e.fs, e.dir)
		if freed < garbage-most {
			j.keeper.cut()
		}
	}
}

// awaitDeletions waits, for a while, until the database has deleted the files that it does not need any more. It
// deletes them in the background, and may fall behind drains.
func (e *Engine) awaitDeletions() {
	for range deletionPauses {
		if int64(e.db.Metrics().Table.ObsoleteSize) <= max(e.journal.keeper.garbage.Load(), leastAwaited) || !e.pause(time.Millisecond) {
			return
		}
	}
}

// repackTables frees about so many bytes of tables with at most so many percent of live ones. It moves no more than
// most, or what the first table has. A table that cannot be read stays as it is.
func (e *Engine) repackTables(percent, excess, most int64) (freed int64, err error) {
	tables, small, err := e.sparseTables(percent)
	if err != nil {
		return 0, err
	}
	var all []piece
	var files []uint64
	for moved := int64(0); len(tables) > 0 && freed < excess && (moved == 0 || moved+tables[0].live <= most); tables = tables[1:] {
		t := &tables[0]
		pieces, err := e.piecesOf(t)
		switch {
		case errors.Is(err, fs.ErrNotExist): // all of it was removed meanwhile
			continue
		case err != nil:
			e.unpacked[t.file] = true
			e.log.Error("a table cannot be repacked", "table", t.file, "err", err)
			continue
		}
		all, files = append(all, pieces...), append(files, t.file)
		freed, moved = freed+t.size-t.live, moved+t.live
	}
	if len(all) == 0 {
		return 0, nil
	}
	for _, r := range joinPieces(append(all, small...), e.residents()) {
		if err := e.moveRun(r); err != nil {
			if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) && e.refusing() == nil {
				for _, f := range files { // one of them, or one beside, cannot be read
					e.unpacked[f] = true
				}
			}
			return 0, err
		}
	}
	if err := e.journal.beginFlush(); err != nil { // the database may have put moves behind its memtable
		return 0, err
	}
	return freed, e.journal.awaitFlush()
}

// moveRun moves what is alive between two keys to a table of its own. An extent that is being removed is not moved: its
// removal may not be durable yet.
func (e *Engine) moveRun(r run) (err error) {
	if err := e.refusing(); err != nil {
		return err
	}
	for _, x := range r.extents {
		x.held.beginMove()
		defer x.held.drainedTo(0)
		if x.isRemoved() {
			return nil
		}
	}
	name := e.files.PathJoin(e.dir, drainDir, repackName)
	some, err := e.copyTo(name, r)
	if err != nil {
		return errors.Join(err, e.removeIfThere(name))
	}
	var tables []string
	if some {
		tables = append(tables, name)
	}
	e.moves.begin()
	err = e.guarded(func() error {
		_, err := e.db.IngestAndExcise(context.Background(), tables, nil, nil, pebble.KeyRange{Start: r.from, End: r.to})
		return err
	})
	e.moves.end()
	if err != nil {
		return errors.Join(core.Errorf(core.CodeUnavailable, "move records to a new table: %w", err), e.removeIfThere(name))
	}
	return nil
}

// copyTo writes a table of the live records of a run; false, and no table, when there are none. It reads the records
// beside the run, too: if it cannot, the database could not cut the run out either.
func (e *Engine) copyTo(name string, r run) (some bool, err error) {
	iter, err := e.db.NewIter(nil)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	if iter.SeekLT(r.from); iter.Error() != nil {
		return false, iter.Error()
	}
	var w *sstable.Writer
	for ok := iter.SeekGE(r.from); ok && string(iter.Key()) < string(r.to); ok = iter.Next() {
		if w == nil {
			if w, err = e.newTable(name, e.db); err != nil {
				return false, err
			}
		}
		value, err := iter.ValueAndErr()
		if err == nil {
			err = w.Set(iter.Key(), value)
		}
		if err != nil {
			return false, errors.Join(err, w.Close())
		}
		e.journal.keeper.moved.Add(uint64(len(value)))
	}
	if w == nil {
		return false, iter.Error()
	}
	return true, errors.Join(iter.Error(), w.Close())
}

func (e *Engine) removeIfThere(name string) error {
	if err := e.files.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// newTable begins a table that a database is to take.
func (e *Engine) newTable(name string, db *pebble.DB) (*sstable.Writer, error) {
	f, err := e.files.Create(name, enginefs.Paced)
	if err != nil {
		return nil, err
	}
	f = vfs.NewSyncingFile(f, vfs.SyncingFileOptions{BytesPerSync: bytesPerSync})
	return sstable.NewWriter(objstorageprovider.NewFileWritable(f), e.options.MakeWriterOptions(0, db.TableFormat())), nil
}
