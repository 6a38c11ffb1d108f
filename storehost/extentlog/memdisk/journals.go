package memdisk

import (
	"path"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// crashable is a file system in memory with the same crashes as vfs.NewCrashableMem, and journals whose syncs are
// cheap. There each sync copies the whole file, and a store syncs its journal all the time.
type crashable struct {
	*vfs.MemFS
	mu   sync.Mutex
	open map[*syncedFile]struct{} // the journals that are being written
}

func newCrashable(fs *vfs.MemFS) *crashable {
	return &crashable{MemFS: fs, open: make(map[*syncedFile]struct{})}
}

// OpenReadWrite implements vfs.FS.
func (c *crashable) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := c.MemFS.OpenReadWrite(name, category, opts...)
	if err != nil || path.Ext(name) != journal {
		return f, err
	}
	j := &syncedFile{File: f, of: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[j] = struct{}{}
	return j, nil
}

// Open implements vfs.FS: a reader finds all that was written.
func (c *crashable) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if path.Ext(name) == journal {
		release, err := c.settle()
		release()
		if err != nil {
			return nil, err
		}
	}
	return c.MemFS.Open(name, opts...)
}

// settle brings all journals to the file system beneath and lets nobody write them until release is called.
func (c *crashable) settle() (release func(), err error) {
	c.mu.Lock()
	for j := range c.open {
		j.mu.Lock()
		if e := j.settleLocked(); e != nil {
			err = e
		}
	}
	return func() {
		for j := range c.open {
			j.mu.Unlock()
		}
		c.mu.Unlock()
	}, err
}

// crash is what a crash leaves.
func (c *crashable) crash(cfg vfs.CrashCloneCfg) *crashable {
	release, err := c.settle()
	defer release()
	if err != nil {
		panic(err) // a file in memory takes all
	}
	return newCrashable(c.CrashClone(cfg))
}

// syncedFile holds back what was written since its last sync. So all that the file beneath has is synced, and need not
// be copied before somebody looks.
type syncedFile struct {
	vfs.File
	of    *crashable
	mu    sync.Mutex
	later []write
	owes  bool // a sync of the file beneath
}

// write is one that the file beneath does not have.
type write struct {
	b  []byte
	at int64
}

// WriteAt implements vfs.File.
func (f *syncedFile) WriteAt(b []byte, at int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.later = append(f.later, write{slices.Clone(b), at})
	return len(b), nil
}

// ReadAt implements vfs.File: it finds what was written and not synced, too.
func (f *syncedFile) ReadAt(b []byte, at int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.File.ReadAt(b, at)
	for _, w := range f.later {
		if from, to := max(at, w.at), min(at+int64(n), w.at+int64(len(w.b))); from < to {
			copy(b[from-at:to-at], w.b[from-w.at:])
		}
	}
	return n, err
}

// Sync implements vfs.File.
func (f *syncedFile) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owes = true
	return f.writeLocked()
}

// SyncData implements vfs.File.
func (f *syncedFile) SyncData() error { return f.Sync() }

// Stat implements vfs.File.
func (f *syncedFile) Stat() (vfs.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.settleLocked(); err != nil {
		return nil, err
	}
	return f.File.Stat()
}

// Close implements vfs.File.
func (f *syncedFile) Close() error {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of.open, f)
	if err := f.settleLocked(); err != nil {
		return err
	}
	return f.File.Close()
}

// settleLocked makes the file beneath have what was synced as synced and what was not as written.
func (f *syncedFile) settleLocked() error {
	if f.owes {
		if err := f.File.Sync(); err != nil {
			return err
		}
		f.owes = false
	}
	return f.writeLocked()
}

func (f *syncedFile) writeLocked() error {
	for _, w := range f.later {
		if _, err := f.File.WriteAt(w.b, w.at); err != nil {
			return err
		}
	}
	clear(f.later)
	f.later = f.later[:0]
	return nil
}
