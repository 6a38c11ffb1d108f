// Package enginefs is the file system that the storage engine writes to: it zeroes its logs ahead, spreads out the writing of tables, slows
// down an engine that cannot write them, and cuts off one that has failed.
package enginefs

import (
	"errors"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// retryPause goes before a table is made after one has failed: the engine tries again at once.
const retryPause = 100 * time.Millisecond

// flush is Pebble's category of what it makes of memtables. Compactions are not paced: they have to rewrite a multiple of what the log takes.
const flush = "pebble-memtable-flush"

// Options of an FS.
type Options struct {
	Taken   func() int64    // bytes ever given to the database
	Failing func() bool     // tables could not be written lately
	Hurry   func() bool     // somebody waits for tables
	Stop    <-chan struct{} // closed when tables shall be written fast
	Gate    *Gate           // nil: one that nobody shuts
	// Fatal is told an error at which the engine would end the process, with locks that it gives up twice: it cannot make its next log. It does not return
	// while the engine runs. nil: nobody is told.
	Fatal func(err error)
}

// FS adds to the one that it wraps; it is safe for concurrent use, as that is.
type FS struct {
	vfs.FS
	o    Options
	pace *intake
}

// New wraps a file system.
func New(fs vfs.FS, o Options) FS {
	if o.Gate == nil {
		o.Gate = new(Gate)
	}
	return FS{FS: gatedFS{fs, o.Gate}, o: o, pace: new(intake)}
}

// Create implements vfs.FS.
func (s FS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	switch filepath.Ext(name) {
	case ".log":
		f, err := s.createLog(func() (vfs.File, error) { return s.FS.Create(name, category) })
		if err != nil {
			return nil, err
		}
		return &wal{File: f}, nil
	case ".sst":
		if s.o.Failing() {
			time.Sleep(retryPause)
		}
		f, err := s.FS.Create(name, category)
		if err != nil || category != flush || s.pace.busy(time.Now(), s.o.Taken()) {
			return f, err
		}
		return &table{File: f, o: s.o, began: s.o.Taken()}, nil
	}
	return s.FS.Create(name, category)
}

// Out of file descriptors or memory, the making of a log is tried again for so long: appends wait meanwhile.
const (
	shortage      = 10 * time.Second
	shortagePause = 100 * time.Millisecond
)

func (s FS) createLog(create func() (vfs.File, error)) (vfs.File, error) {
	for began := time.Now(); ; time.Sleep(shortagePause) {
		f, err := create()
		if err == nil {
			return f, nil
		}
		if short := errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM); short && time.Since(began) < shortage {
			continue
		}
		s.fatal(err)
		return nil, err
	}
}

func (s FS) fatal(err error) {
	if s.o.Fatal != nil {
		s.o.Fatal(err)
	}
}

// ReuseForWrite implements vfs.FS: an old log becomes the next one.
func (s FS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return s.createLog(func() (vfs.File, error) { return s.FS.ReuseForWrite(oldname, newname, category) })
}

// OpenDir implements vfs.FS.
func (s FS) OpenDir(name string) (vfs.File, error) {
	f, err := s.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &directory{f, s}, nil
}

// directory is synced once a log is made in it.
type directory struct {
	vfs.File
	fs FS
}

// Sync implements vfs.File.
func (d *directory) Sync() error {
	err := d.File.Sync()
	if err != nil {
		d.fs.fatal(err)
	}
	return err
}
