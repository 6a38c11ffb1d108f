package extentlog

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/columbamq/columba/core"
)

// The database lies below the locked directory, so that a new one can be made beside its place and moved there whole: a
// power cut while it is being made leaves nothing that looks like a damaged store.
const (
	databaseDir = "log"
	unfinished  = "log.new"
	secretLen   = 32
)

// acquire makes the directory if need be, locks it and opens the database. A remedy, if there is one, comes before the
// opening.
func (e *Engine) acquire(remedy func() error) error {
	if err := e.ensureDirectory(); err != nil {
		return err
	}
	lock, err := pebble.LockDirectory(e.dir, e.fs)
	if err != nil {
		return lockError(e.dir, err)
	}
	e.lock = lock
	e.space.look(e.fs, e.dir)
	e.journal.keeper.limit(e.space.fill().total)
	e.queue.setMost(min(e.space.fill().memtable()/16*7, int(e.journal.keeper.segment()/4)))
	if remedy != nil {
		err = remedy()
	}
	if err == nil {
		err = e.openDatabase()
	}
	if err != nil {
		return errors.Join(err, e.abandon())
	}
	return nil
}

// abandon gives up what could not be opened; a database that goes on trying is cut off first.
func (e *Engine) abandon() error {
	if e.broken.Load() != nil {
		return e.leave(e.db != nil)
	}
	e.release()
	return nil
}

func (e *Engine) openDatabase() error {
	if err := e.endReplacement(); err != nil {
		return err
	}
	home := e.fs.PathJoin(e.dir, databaseDir)
	if _, err := e.fs.Stat(home); errors.Is(err, fs.ErrNotExist) {
		if err := e.makeDatabase(home); err != nil {
			return err
		}
	}
	if err := e.checkManifest(home); err != nil {
		return err
	}
	db, full, err := e.openHome()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return damagedDatabase(e.dir, err) // it was made whole: something took a file away
	case err != nil:
		return openError(e.dir, err)
	}
	e.db = db
	e.readOnly.Store(full)
	return e.identify()
}

// makeDatabase makes an empty database with the store's identity and moves it home.
func (e *Engine) makeDatabase(home string) error {
	if e.identity.Store == "" {
		return core.Errorf(core.CodeBadArgument, "a new store needs an id")
	}
	if full := e.lacksRoom(); full != nil {
		return full
	}
	fresh := e.fs.PathJoin(e.dir, unfinished)
	if err := e.fs.RemoveAll(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return openError(e.dir, err)
	}
	db, err := e.openPebble(fresh, false)
	if err != nil {
		return openError(e.dir, err)
	}
	if err := errors.Join(e.mint(db), e.keepIdentity(db), db.Close(), e.fs.Rename(fresh, home), e.syncDir(e.dir)); err != nil {
		return openError(e.dir, err)
	}
	return nil
}

// mint writes the identity of a new store, once and for ever.
func (e *Engine) mint(db *pebble.DB) error {
	disk := core.NewID(time.Now())
	b := db.NewBatch()
	defer b.Close()
	return errors.Join(
		b.Set(keyFormat, []byte{FormatVersion}, nil),
		b.Set(keyIdentity, append(disk[:], e.identity.Store...), nil),
		b.Set(keySecret, newSecret(), nil),
		db.Apply(b, pebble.NoSync),
		db.Flush(),
	)
}

// convert makes a directory one of this version. Its database had a log of its own, and has made memtables of that when
// it was opened. A crash before the version is flushed with them leaves it as it was.
func (e *Engine) convert() error {
	secret, err := e.meta(keySecret)
	if err != nil || len(secret) == secretLen {
		return err
	}
	b := e.db.NewBatch()
	defer b.Close()
	if err := errors.Join(
		b.Set(keyFormat, []byte{FormatVersion}, nil),
		b.Set(keySecret, newSecret(), nil),
		e.db.Apply(b, pebble.NoSync),
		e.db.Flush(),
	); err != nil {
		return openError(e.dir, err)
	}
	return nil
}

// newSecret makes the key by which a start knows its own groups of the log from what publishers sent.
func newSecret() []byte {
	secret := make([]byte, secretLen)
	_, _ = rand.Read(secret) // it never fails
	return secret
}

func (e *Engine) syncDir(name string) error {
	d, err := e.fs.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (e *Engine) release() error {
	var errs []error
	if e.db != nil {
		errs = append(errs, e.closeDatabase())
		e.db = nil
	}
	if e.lock != nil {
		errs = append(errs, e.lock.Close())
		e.lock = nil
	}
	return errors.Join(errs...)
}

// closeDatabase is called when nobody uses it any more.
func (e *Engine) closeDatabase() error {
	e.cursors.sweep(func(*cursor) bool { return true })
	return errors.Join(e.db.Close(), e.journal.release())
}

func (e *Engine) ensureDirectory() error {
	info, err := e.fs.Stat(e.dir)
	switch {
	case err == nil && !info.IsDir():
		return core.Errorf(core.CodeBadArgument, "%s is not a directory; choose another for the store", e.dir)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return openError(e.dir, err)
	}
	parent := e.fs.PathDir(e.dir)
	if _, err := e.fs.Stat(parent); err != nil {
		return core.Errorf(core.CodeNotFound, "directory %s does not exist; make it, or mount the disk that holds the store: %w", parent, err)
	}
	if err := e.fs.MkdirAll(e.dir, 0o755); err != nil {
		return openError(e.dir, err)
	}
	if err := e.syncDir(parent); err != nil {
		return openError(parent, err)
	}
	return nil
}

// tablesPerShard keeps parts of the cache of open tables from being small: each forgets by itself.
const tablesPerShard = 64

// pebbleOptions keeps compactions out of the way of appends: keys only grow inside an extent, so there is nothing to
// merge until so many tables overlap that reads suffer.
func (e *Engine) pebbleOptions() *pebble.Options {
	o := &pebble.Options{
		FS:                          e.files,
		DisableWAL:                  true, // the journal is its log
		Logger:                      pebbleLog{e},
		FormatMajorVersion:          pebble.FormatNewest,
		CacheSize:                   4 << 20,
		MemTableSize:                uint64(e.space.fill().memtable()),
		MaxManifestFileSize:         int64(e.space.fill().memtable()) / 4, // else 128 MiB, also on a small disk; there may be two
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       500,
		L0CompactionFileThreshold:   2 * e.space.fill().tables(), // those of rows are merged before
		L0StopWritesThreshold:       1000,
		FileCache:                   pebble.NewFileCache(max(1, min(runtime.GOMAXPROCS(0), e.tables/tablesPerShard)), e.tables),
		BlockPropertyCollectors:     []func() pebble.BlockPropertyCollector{intervals},
		DisableTableStats:           true, // for the choice of compactions, which there are hardly any of; a damaged table is tried for ever
		EventListener: &pebble.EventListener{
			BackgroundError: e.backgroundError,
			FlushBegin:      func(info pebble.FlushInfo) { e.hurry.behind.Store(info.Input > 1 && !info.Ingest) },
			WriteStallBegin: func(pebble.WriteStallBeginInfo) { e.hurry.stalled.Store(true) },
			WriteStallEnd:   func() { e.hurry.stalled.Store(false) },
			FlushEnd: func(info pebble.FlushInfo) {
				e.hurry.behind.Store(false)
				if info.Err == nil {
					e.failures.Store(0)
				}
			},
			// The default would end the process at every read of one bad block. The read that met it quarantines its extent.
			DataCorruption: e.tableDamaged,
		},
	}
	o.Experimental.ReadSamplingMultiplier = -1
	o.Experimental.SpanPolicyFunc = splitTables
	o.Experimental.DisableIngestAsFlushable = func() bool { return e.excisions.now.Load() != nil } // else a cut is put off to a flush
	for i := range o.Levels {
		o.Levels[i].BlockSize = 32 << 10
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	}
	o.TargetFileSizes[0] = 16 << 20
	return o
}

// splitTables ends a table before and behind the batches, and before and behind the index of timers: a few rows in the
// same table, or tombstones, would keep all the space of removed extents.
func splitTables(start []byte) (policy pebble.SpanPolicy, end []byte, err error) {
	for _, split := range []byte{prefixBatch, prefixBatch + 1, prefixDue, prefixDue + 1} {
		if len(start) == 0 || start[0] < split {
			return policy, []byte{split}, nil
		}
	}
	return policy, nil, nil
}

// load reads every extent's row and position.
func (e *Engine) load() error {
	log, err := e.openRing(true, e.readOnly.Load() == nil)
	if err != nil {
		return err
	}
	e.journal.toMark = !e.journal.ring.Marked()
	err = e.eachRow(func(r row) error {
		x := &extent{id: r.Extent.ID}
		x.next.row = r
		value, err := e.meta(extentKey(prefixPosition, x.id))
		if err != nil {
			return err
		}
		if x.next.position, err = decodePosition(value); err != nil {
			return damagedDatabase(e.dir, err)
		}
		x.held.mix()
		sound, err := log.give(x)
		if err != nil {
			return err
		}
		if !sound {
			e.short = append(e.short, x)
		}
		x.publish(x.next)
		e.mu.extents[x.id] = x
		e.index.note(x, e.identity.Run)
		return nil
	})
	if err != nil {
		return err
	}
	if e.readOnly.Load() == nil {
		if err := log.cutOrphans(); err != nil {
			return err
		}
	}
	if err := e.loadPass(); err != nil {
		return err
	}
	return e.loadGraveyard()
}

// pebbleLog passes Pebble's words on. Pebble calls Fatalf when it cannot go on, often with locks held, and must not get
// control back: the log has failed, and the goroutine waits for ever.
type pebbleLog struct{ e *Engine }

func (l pebbleLog) Infof(format string, args ...any) {}

func (l pebbleLog) Errorf(format string, args ...any) {
	l.e.log.Error("storage", "err", fmt.Sprintf(format, args...))
}

func (l pebbleLog) Fatalf(format string, args ...any) {
	l.e.fail(fmt.Errorf(format, args...))
	select {}
}

// hurry reports whether writers wait for tables, or soon will. The rate of the log does not show it: the log accepts
// nothing while it waits.
type hurry struct {
	opening atomic.Bool // the database makes tables of what its logs hold
	behind  atomic.Bool // several memtables are written together
	stalled atomic.Bool // no memtable is free
}

func (h *hurry) now() bool { return h.opening.Load() || h.behind.Load() || h.stalled.Load() }
