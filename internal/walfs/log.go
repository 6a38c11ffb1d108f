package walfs

import (
	"github.com/cockroachdb/pebble/v2/vfs"
)

// log is a write-ahead log, used by one goroutine at a time. The engine answers its first error to all who wait for it,
// and touches the log again only to close it. Unless the whole engine is being closed, that is for the next log, and a
// panic follows.
type log struct {
	vfs.File
	fs  FS
	err error // the first one
}

// change tells the first error before the engine knows it, so that nobody goes on to the next log.
func (f *log) change(do func() error) error {
	if f.err != nil {
		return f.fs.fatal(f.err)
	}
	if f.err = do(); f.err != nil {
		f.fs.failed(f.err)
	}
	return f.err
}

// Write implements vfs.File.
func (f *log) Write(b []byte) (n int, err error) {
	err = f.change(func() (err error) { n, err = f.File.Write(b); return err })
	return n, err
}

// Sync implements vfs.File.
func (f *log) Sync() error { return f.change(f.File.Sync) }

// SyncData implements vfs.File.
func (f *log) SyncData() error { return f.change(f.File.SyncData) }

// SyncTo implements vfs.File.
func (f *log) SyncTo(length int64) (full bool, err error) {
	err = f.change(func() (err error) { full, err = f.File.SyncTo(length); return err })
	return full, err
}

// Stat implements vfs.File: the engine asks for the size of an old log that becomes the next one.
func (f *log) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	if err != nil {
		return nil, f.fs.fatal(err)
	}
	return info, nil
}

// Close implements vfs.File.
func (f *log) Close() error {
	err := f.File.Close()
	if f.err != nil {
		err = f.err
	}
	if err != nil {
		return f.fs.fatal(err)
	}
	return nil
}
