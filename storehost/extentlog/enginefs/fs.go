// Package enginefs is the file system that the storage engine writes to: it spreads out the writing of tables, slows
// down an engine that cannot write them, and cuts off one that has failed.
package enginefs

import (
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// retryPause goes before a table is made after one has failed: the engine tries again at once.
const retryPause = 100 * time.Millisecond

// Paced is the category of tables that are written slowly while nobody waits for them: Pebble's, of what it makes of
// memtables. Compactions are not paced: they have to rewrite a multiple of what the log takes.
const Paced vfs.DiskWriteCategory = "pebble-memtable-flush"

// Options of an FS.
type Options struct {
	Taken   func() int64    // bytes ever given to the database
	Failing func() bool     // tables could not be written lately
	Hurry   func() bool     // somebody waits for tables
	Stop    <-chan struct{} // closed when tables shall be written fast
	Gate    *Gate           // nil: one that nobody shuts
	// Unread is told when a read of a table fails; nil: nobody is.
	Unread func(name string, err error)
}

// FS adds to the one that it wraps; it is safe for concurrent use, as that is.
type FS struct {
	vfs.FS
	o    Options
	pace *intake
}

// New wraps a file system.
func New(fs vfs.FS, o Options) *FS {
	if o.Gate == nil {
		o.Gate = new(Gate)
	}
	return &FS{FS: gatedFS{fs, o.Gate}, o: o, pace: new(intake)}
}

// Open implements vfs.FS.
func (s *FS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.Open(name, opts...)
	if err != nil || s.o.Unread == nil || filepath.Ext(name) != ".sst" {
		return f, err
	}
	return &readTable{f, name, s.o.Unread}, nil
}

// Create implements vfs.FS.
func (s *FS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	switch filepath.Ext(name) {
	case ".sst":
		if s.o.Failing() {
			time.Sleep(retryPause)
		}
		f, err := s.FS.Create(name, category)
		if err != nil || category != Paced || s.pace.busy(time.Now(), s.o.Taken()) {
			return f, err
		}
		return &table{File: f, o: s.o, began: s.o.Taken()}, nil
	}
	return s.FS.Create(name, category)
}
