package pebble

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"

	engine "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/walfs"
)

// formatVersion is the version of the keys and of the cell encoding. This build reads format 1, too: its keys of work
// hints are moved by the controller. A store of format 1 is marked with this one at its first opening.
const formatVersion = 2

// Sizes that keep an idle server small.
const (
	blockCache = 8 << 20
	memTable   = 4 << 20
	openTables = 246
	// startRoom is what must be free: the engine begins with a flush, and would try it for ever, without a word, on a disk
	// that is full.
	startRoom = 4*memTable + 8<<20
)

// Open opens the store in dir, which it makes if dir's parent is there, and starts its sweeper.
// Errors: CodeNotFound (no parent), CodeReadOnly, CodeLocked (another process, or this one, has it open),
// CodeNewerFormat, CodeNoSpace, CodeCorrupt, CodeUnavailable. tables is how many tables may be open at once, 0: 246.
// log may be nil.
func Open(dir string, tables int, log *slog.Logger) (*Store, error) {
	return open(vfs.Default, dir, tables, log)
}

func open(disk vfs.FS, dir string, tables int, log *slog.Logger) (_ *Store, err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := makeDir(disk, dir); err != nil {
		return nil, err
	}
	if err := checkRoom(disk, dir); err != nil {
		return nil, err
	}
	lock, err := engine.LockDirectory(dir, disk)
	if err != nil {
		return nil, lockError(dir, err)
	}
	s := newStore(dir, lock)
	options := s.options(disk, lock, log)
	if tables = min(cmp.Or(tables, openTables), openTables); tables < openTables {
		options.FileCache = engine.NewFileCache(1, tables)
		defer options.FileCache.Unref() // the database holds it
	}
	if s.db, err = engine.Open(dir, options); err != nil {
		return nil, errors.Join(openError(dir, err), closed(lock.Close()))
	}
	if err := s.checkFormat(); err != nil {
		return nil, errors.Join(err, closed(s.db.Close()), closed(lock.Close()))
	}
	s.live.Store(true)
	s.work.Go(s.sweepUntilClosed)
	return s, nil
}

func (s *Store) options(disk vfs.FS, lock *engine.Lock, log *slog.Logger) *engine.Options {
	logger := newLogger(log, s.fail)
	retry := &retry{log: logger, stop: s.ctx.Done()}
	return &engine.Options{
		FS:                 walfs.New(pacedDisk{disk, retry}, s.logFailed),
		Lock:               lock,
		FormatMajorVersion: engine.FormatNewest,
		CacheSize:          blockCache,
		MemTableSize:       memTable,
		MaxOpenFiles:       openTables + 10, // as many are other files, to the engine
		Logger:             logger,
		EventListener:      retry.listener(),
	}
}

// makeDir makes dir, but not its parents: a parent that is not there is a disk that is not mounted or a mistyped path.
func makeDir(disk vfs.FS, dir string) error {
	if _, err := disk.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if _, err := disk.Stat(parent); err != nil {
		return core.Errorf(core.CodeNotFound, "open metadata: directory %s is not there; make it, or mount its disk, and start again: %w", parent, err)
	}
	if err := disk.MkdirAll(dir, 0o700); err != nil {
		return openError(dir, err)
	}
	above, err := disk.OpenDir(parent)
	if err != nil {
		return openError(parent, err)
	}
	defer above.Close()
	if err := above.Sync(); err != nil {
		return openError(parent, err)
	}
	return nil
}

// checkRoom refuses a disk that is nearly full.
func checkRoom(disk vfs.FS, dir string) error {
	use, err := disk.GetDiskUsage(dir)
	if err != nil && !errors.Is(err, vfs.ErrUnsupported) {
		return openError(dir, err)
	}
	if err == nil && use.AvailBytes < startRoom {
		return core.Errorf(core.CodeNoSpace, "open metadata: the disk of %s has %d MiB left and %d are needed to start; free space on it", dir, use.AvailBytes>>20, startRoom>>20)
	}
	return nil
}

// lockError is why the directory's lock could not be had.
func lockError(dir string, err error) error {
	// The engine has no error value for a lock that this process holds.
	held := errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "lock held")
	if !held {
		return openError(dir, err)
	}
	return core.Errorf(core.CodeLocked, "open metadata: %s is in use by another columba process; the embedded metadata serves one process – "+
		"stop the other one or choose another data directory; more than one controller needs metadata in Cassandra: %w", dir, err)
}

// openError puts an error of the file system or of the engine into the catalogue.
func openError(dir string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return core.Errorf(core.CodeReadOnly, "open metadata: %s cannot be written; give this user the right to write it: %w", dir, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return core.Errorf(core.CodeNoSpace, "open metadata: the disk of %s is full, or the quota is exceeded; free space on it: %w", dir, err)
	case errors.Is(err, syscall.ENOTDIR):
		return core.Errorf(core.CodeBadArgument, "open metadata: %s is not a directory; choose another data directory: %w", dir, err)
	case errors.Is(err, fs.ErrNotExist):
		return core.Errorf(core.CodeNotFound, "open metadata: %s is not there: %w", dir, err)
	case strings.Contains(err.Error(), "unknown format major version"):
		return core.Errorf(core.CodeNewerFormat, "open metadata: %s was written by a newer version of columba; use that version: %w", dir, err)
	case engine.IsCorruptionError(err), strings.Contains(err.Error(), "object size mismatch"): // a table was cut off
		return core.Errorf(core.CodeCorrupt, "open metadata: %s is damaged; restore it from a copy: %w", dir, err)
	}
	return core.Errorf(core.CodeUnavailable, "open metadata in %s: %w", dir, err)
}

// checkFormat refuses a newer format, and marks a directory that is new or has an older one with this one.
func (s *Store) checkFormat() error {
	value, closer, err := s.db.Get([]byte(formatKey))
	if errors.Is(err, engine.ErrNotFound) {
		return s.markFormat()
	}
	if err != nil {
		return openError(s.dir, err)
	}
	defer closer.Close()
	if len(value) != 4 {
		return core.Errorf(core.CodeCorrupt, "open metadata: %s has a format mark of %d bytes; restore it from a copy", s.dir, len(value))
	}
	switch v := binary.BigEndian.Uint32(value); {
	case v > formatVersion:
		return core.Errorf(core.CodeNewerFormat, "open metadata: %s has format %d, this version of columba reads up to %d; use the newer version", s.dir, v, formatVersion)
	case v < formatVersion:
		return s.markFormat()
	}
	return nil
}

func (s *Store) markFormat() error {
	if err := s.db.Set([]byte(formatKey), binary.BigEndian.AppendUint32(nil, formatVersion), engine.Sync); err != nil {
		return openError(s.dir, err)
	}
	return nil
}

// closed keeps the error of a close while a better one is reported.
func closed(err error) error {
	if err == nil {
		return nil
	}
	return core.Errorf(core.CodeInternal, "close metadata: %w", err)
}
