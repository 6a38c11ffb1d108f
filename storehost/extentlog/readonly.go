package extentlog

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/enginefs"
)

// A store that starts on a full disk only reads, until there is room. To open the database for writing, Pebble makes
// tables of what its logs hold, and retries that for ever when there is no space.
const (
	startLogs  = 5 // memtables that may not be in a table yet
	startShare = 8 // of the reserve, for all else
)

// lacksRoom is CodeNoSpace when there is too little room to open the database for writing.
func (e *Engine) lacksRoom() *core.Error {
	f := e.space.fill()
	need := f.reserve()/startShare + int64(startLogs*f.memtable())
	if f.total == 0 || f.free >= need {
		return nil
	}
	return core.Errorf(core.CodeNoSpace, "the disk of %s is full: %d MiB are left, and to write it takes %d; free some space", e.dir, f.free>>20, need>>20+1)
}

// openPebble opens a database, if need be read-only. When it cannot write its tables, the goroutine that opens it goes
// on trying, and closes it should it succeed; the process is expected to end.
func (e *Engine) openPebble(home string, readOnly bool) (*pebble.DB, error) {
	type outcome struct {
		db  *pebble.DB
		err error
	}
	opened := make(chan outcome)
	options := e.pebbleOptions()
	e.options, e.readTables = options, readerOptions(options)
	if readOnly {
		options.FS = enginefs.Overlay(e.files) // rows of the log go into it
	}
	options.ErrorIfNotExists = e.fs.PathBase(home) == databaseDir // it was made whole
	go func() {
		defer options.FileCache.Unref() // the database holds it
		var db *pebble.DB
		err := forgetOptions(options.FS, home)
		if err == nil {
			db, err = pebble.Open(home, options)
		}
		select {
		case opened <- outcome{db, err}:
		case <-e.failed:
			if err == nil {
				db.Close()
			}
		}
	}()
	select {
	case o := <-opened:
		return o.db, o.err
	case <-e.failed:
		return nil, e.refusing()
	}
}

// openHome opens the store's database; read-only when it is full.
func (e *Engine) openHome() (db *pebble.DB, full *core.Error, err error) {
	home := e.fs.PathJoin(e.dir, databaseDir)
	full = e.lacksRoom()
	e.hurry.opening.Store(true)
	defer e.hurry.opening.Store(false)
	db, err = e.openPebble(home, full != nil)
	if err == nil && full != nil {
		e.log.Warn("reading only, the disk is full", "dir", e.dir, "err", full)
	}
	return db, full, err
}

// returnToWriting opens the database anew once there is room; only housekeep calls it. Reads are refused meanwhile. The
// state in memory stays true, since nothing was written.
func (e *Engine) returnToWriting() {
	if e.readOnly.Load() == nil || e.lacksRoom() != nil {
		return
	}
	if !e.suspend() {
		return
	}
	e.mu.readers.Wait()
	err := e.closeDatabase()
	var db *pebble.DB
	var full *core.Error
	if err == nil {
		err = e.checkManifest(e.fs.PathJoin(e.dir, databaseDir))
	}
	if err == nil {
		db, full, err = e.openHome()
	}
	if err == nil {
		e.db = db
		_, err = e.openRing(false, full == nil)
	}
	e.mu.Lock()
	e.db = db
	e.mu.suspended = db == nil
	e.mu.Unlock()
	if err != nil {
		e.fail(err)
		return
	}
	e.readOnly.Store(full) // from here on commitLoop uses the database
	e.log.Info("opened anew, the disk has room", "dir", e.dir)
}

// suspend lets nobody read; false when the log closes.
func (e *Engine) suspend() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.suspended = !e.mu.closed
	return e.mu.suspended
}
