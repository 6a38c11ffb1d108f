// Package walfs owns how a storage engine meets errors of its write-ahead logs. Pebble panics, with locks that it gives
// up twice, when it cannot end a log or begin the next one. That ends the process, with all its roles; the store alone
// has to fail instead.
package walfs

import (
	"errors"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Failed is told each error of a log, perhaps under the engine's locks, so it must not call the engine. It answers
// whether the engine is in use: the goroutine at which the engine would panic waits for ever then. An engine that is
// being opened or closed returns errors of its logs.
type Failed func(err error) (inUse bool)

// FS adds to the one that it wraps; it is safe for concurrent use, as that is.
type FS struct {
	vfs.FS
	failed Failed
}

// New wraps a file system.
func New(fs vfs.FS, failed Failed) FS { return FS{fs, failed} }

// Create implements vfs.FS.
func (s FS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if filepath.Ext(name) != ".log" {
		return s.FS.Create(name, category)
	}
	return s.createLog(func() (vfs.File, error) { return s.FS.Create(name, category) })
}

// ReuseForWrite implements vfs.FS: an old log becomes the next one.
func (s FS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return s.createLog(func() (vfs.File, error) { return s.FS.ReuseForWrite(oldname, newname, category) })
}

// Out of file descriptors or memory, the making of a log is tried again for so long: writes wait meanwhile.
const (
	shortage      = 10 * time.Second
	shortagePause = 100 * time.Millisecond
)

func (s FS) createLog(create func() (vfs.File, error)) (vfs.File, error) {
	for began := time.Now(); ; time.Sleep(shortagePause) {
		f, err := create()
		if err == nil {
			return &log{File: f, fs: s}, nil
		}
		if short := errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM); short && time.Since(began) < shortage {
			continue
		}
		return nil, s.fatal(err)
	}
}

// fatal is for errors at which an engine in use would panic.
func (s FS) fatal(err error) error {
	if s.failed(err) {
		select {}
	}
	return err
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
	if err := d.File.Sync(); err != nil {
		return d.fs.fatal(err)
	}
	return nil
}
