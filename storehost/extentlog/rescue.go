package extentlog

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
)

// replaced is the name of a damaged database while a new one takes its place.
const replaced = "log.old"

// keyRescued is there from a rescue until the start after it has settled what that leaves open: number u64 of a group
// that was durable, and what is to be done.
var keyRescued = []byte{prefixMeta, 'u'}

// The steps that a rescue leaves to the next start.
const (
	rescuedRows = 1 // rows may have been lost
	rescuedCut  = 2 // all is settled, but for records of extents that have no row
)

// rescue makes a new database of what can be read of a damaged one, and puts it in that one's place.
//
//	log         log.new      log.old
//	damaged     being made               a crash: it is thrown away, and the next start begins anew
//	            whole        damaged     a crash: the damaged one goes back, and the next start begins anew
//	whole                    damaged     a crash: the next start removes the damaged one
//
// The new database takes tables of batches that drains made as they are. All other batches, and the rows, are written
// anew. The index of timers is left out: the store makes it again from the batches.
//
// Rows count as lost whatever could be read: without the list of the tables nothing tells that one is missing, or that
// all tables of a flush are there.
func (e *Engine) rescue(cause error) error {
	var damage databaseDamage
	errors.As(cause, &damage) // the text around it says to move the directory away
	e.hurry.opening.Store(true)
	defer e.hurry.opening.Store(false)
	fresh := e.fs.PathJoin(e.dir, unfinished)
	if err := errors.Join(e.endReplacement(), e.clearDrains(), e.removeAll(fresh)); err != nil {
		return openError(e.dir, err)
	}
	e.space.look(e.fs, e.dir) // without what a rescue left that was cut short
	if full := e.lacksRoom(); full != nil {
		return full
	}
	s := newSalvage(e)
	if err := s.read(); err != nil {
		return err
	}
	if err := s.rows.identify(e); err != nil {
		return err
	}
	if free := e.space.fill().free; e.space.fill().total > 0 && s.copied > free-min(free, e.space.fill().reserve()) {
		return core.Errorf(core.CodeNoSpace, "the database in %s is damaged, and to make a new one of what can be read takes %d MiB; free some space: %w", e.dir, s.copied>>20+1, damage.error)
	}
	if err := s.write(fresh); err != nil {
		return errors.Join(err, e.removeAll(fresh))
	}
	if err := e.replaceDatabase(fresh); err != nil {
		return err
	}
	e.log.Error("the database is damaged: a new one has what could be read of it. Extents that may lack something are quarantined, and repaired from other stores; check the disk",
		"dir", e.dir, "err", damage.error, "tables", len(s.tables), "unread", strings.Join(s.unread, " "), "linked", len(s.linked), "extents", s.rows.extents())
	return nil
}

// replaceDatabase puts a new database in the place of the old one, and removes that.
func (e *Engine) replaceDatabase(fresh string) error {
	home, old := e.fs.PathJoin(e.dir, databaseDir), e.fs.PathJoin(e.dir, replaced)
	for _, step := range []func() error{
		func() error { return e.syncDir(e.dir) },
		func() error { return e.files.Rename(home, old) },
		func() error { return e.syncDir(e.dir) },
		func() error { return e.files.Rename(fresh, home) },
		func() error { return e.syncDir(e.dir) },
		e.endReplacement,
	} {
		if err := step(); err != nil {
			return openError(e.dir, err)
		}
	}
	return nil
}

// endReplacement ends the replacement of a database that a crash cut short.
func (e *Engine) endReplacement() error {
	home, old := e.fs.PathJoin(e.dir, databaseDir), e.fs.PathJoin(e.dir, replaced)
	if _, err := e.fs.Stat(old); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_, err := e.fs.Stat(home)
	switch {
	case err == nil:
		err = e.files.RemoveAll(old)
	case errors.Is(err, fs.ErrNotExist):
		err = e.files.Rename(old, home)
	}
	if err = errors.Join(err, e.syncDir(e.dir)); err != nil {
		return openError(e.dir, err)
	}
	return nil
}

// tableFile is a table in the directory of a database.
type tableFile struct {
	name   string
	number uint64 // higher than those of tables that were made before
	size   int64
}

// tablesIn lists all tables by their numbers.
func (e *Engine) tablesIn(home string) (all []tableFile, err error) {
	names, err := e.files.List(home)
	if err != nil {
		return nil, openError(e.dir, err)
	}
	for _, name := range names {
		number, err := strconv.ParseUint(strings.TrimSuffix(name, ".sst"), 10, 64)
		if path.Ext(name) != ".sst" || err != nil {
			continue
		}
		name = e.fs.PathJoin(home, name)
		info, err := e.files.Stat(name)
		if err != nil {
			return nil, openError(e.dir, err)
		}
		all = append(all, tableFile{name, number, info.Size()})
	}
	slices.SortFunc(all, func(a, b tableFile) int { return cmp.Compare(a.number, b.number) })
	return all, nil
}

func (e *Engine) readerOptions() sstable.ReaderOptions {
	o := e.pebbleOptions()
	defer o.FileCache.Unref()
	return readerOptions(o)
}

// readerOptions are those for tables that are read apart from the database.
func readerOptions(o *pebble.Options) sstable.ReaderOptions {
	o = o.Clone()
	o.EnsureDefaults()
	return o.MakeReaderOptions()
}

// salvage is a rescue under way.
type salvage struct {
	e      *Engine
	o      sstable.ReaderOptions
	tables []tableFile
	linked map[string]bool // tables that are taken as they are
	mixed  map[string]bool // tables whose batches are written anew
	unread []string        // tables of which a part cannot be read
	copied int64           // bytes that are written anew
	rows   salvagedRows
	cuts   map[string][]cut // ranges of records that were deleted, by the key of their extent
}

func newSalvage(e *Engine) *salvage {
	return &salvage{e: e, o: e.readerOptions(), linked: make(map[string]bool), mixed: make(map[string]bool), cuts: make(map[string][]cut), rows: newSalvagedRows()}
}

// read takes the rows of all tables, and finds out what becomes of each table.
func (s *salvage) read() (err error) {
	s.tables, err = s.e.tablesIn(s.e.fs.PathJoin(s.e.dir, databaseDir))
	if err != nil {
		return err
	}
	for _, t := range s.tables {
		if err := s.readTable(t); err != nil {
			return openError(s.e.dir, err)
		}
	}
	return nil
}

func (s *salvage) readTable(t tableFile) error {
	r, err := s.open(t)
	if err != nil {
		return s.damaged(t, err)
	}
	defer r.Close()
	cuts, torn := cutsIn(r)
	if err := s.damaged(t, torn); err != nil { // ranges are of records only
		return err
	}
	for _, c := range cuts {
		if key := keyOfExtent(c.from); key != "" {
			s.cuts[key] = append(s.cuts[key], c)
		}
	}
	if torn == nil && len(cuts) == 0 && isDrained(r) {
		s.linked[t.name] = true
		return nil
	}
	batches := int64(0)
	damage, err := eachKey(r, func(key pebble.InternalKey, value []byte) error {
		switch key.UserKey[0] {
		case prefixBatch:
			batches += int64(len(value))
		case prefixDue:
		default:
			s.rows.add(key, value, t.number)
		}
		return nil
	})
	s.copied += batches
	s.mixed[t.name] = batches > 0
	if err != nil {
		return err
	}
	return s.damaged(t, damage)
}

// damaged notes that a part of a table cannot be read, if err says so.
func (s *salvage) damaged(t tableFile, err error) error {
	if err == nil || !isDamage(err) {
		return err
	}
	if n := len(s.unread); n == 0 || s.unread[n-1] != s.e.fs.PathBase(t.name) {
		s.unread = append(s.unread, s.e.fs.PathBase(t.name))
	}
	return nil
}

func (s *salvage) open(t tableFile) (*sstable.Reader, error) {
	return openTable(s.e.files, t.name, s.o)
}

func openTable(files vfs.FS, name string, o sstable.ReaderOptions) (*sstable.Reader, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	file, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(context.Background(), file, o)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return r, nil
}

// write makes the new database.
func (s *salvage) write(fresh string) error {
	e := s.e
	db, err := e.openPebble(fresh, false)
	if err != nil {
		return openError(e.dir, err)
	}
	w := rescueWriter{s: s, db: db}
	for _, t := range s.tables {
		if err == nil {
			err = w.table(t)
		}
	}
	if err == nil {
		err = w.ingest()
	}
	if err == nil {
		err = s.rows.write(db)
	}
	if err == nil {
		err = e.flushed(db)
	}
	if broken := e.broken.Load(); broken != nil { // it goes on trying, cut off from its files
		if strings.Contains(broken.Error(), syscall.ENOSPC.Error()) {
			return openError(e.dir, errors.Join(syscall.ENOSPC, broken))
		}
		return broken
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return openError(e.dir, err)
	}
	return nil
}

// flushed flushes a database, unless that cannot be.
func (e *Engine) flushed(db *pebble.DB) error {
	done, err := db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-e.failed:
		return e.refusing()
	}
}

// rescueWriter gives tables to the new database. Later tables cover what earlier ones have under the same keys.
type rescueWriter struct {
	s      *salvage
	db     *pebble.DB
	made   int
	names  []string // to be ingested together
	ranges []cut    // of them
}

// ingestMost is how many tables are ingested at once.
const ingestMost = 64

// table takes the batches of one table.
func (w *rescueWriter) table(t tableFile) error {
	e := w.s.e
	if !w.s.linked[t.name] && !w.s.mixed[t.name] {
		return nil
	}
	r, err := w.s.open(t)
	if err != nil {
		return w.s.damaged(t, err)
	}
	defer r.Close()
	name := e.files.PathJoin(e.dir, drainDir, fmt.Sprintf("%06d.sst", w.made))
	w.made++
	var all cut
	if w.s.linked[t.name] {
		if all, err = ends(r); err == nil {
			err = vfs.LinkOrCopy(e.files, t.name, name)
		}
	} else {
		all, err = w.copyTable(r, name)
	}
	if err != nil || all.from == nil {
		return err
	}
	if len(w.names) == ingestMost || slices.ContainsFunc(w.ranges, all.overlaps) {
		if err := w.ingest(); err != nil {
			return err
		}
	}
	w.names, w.ranges = append(w.names, name), append(w.ranges, all)
	return nil
}

func (w *rescueWriter) ingest() error {
	if len(w.names) == 0 {
		return nil
	}
	err := w.db.Ingest(context.Background(), w.names)
	w.names, w.ranges = nil, nil
	return err
}

// salvageMark is the value of keyRescued.
func salvageMark(durable uint64, what byte) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, durable), what)
}

// removeAll removes a directory, if it is there.
func (e *Engine) removeAll(name string) error {
	if err := e.files.RemoveAll(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
