package enginefs

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrSevered is what all changes get once the gate is shut.
var ErrSevered = errors.New("the storage engine was cut off from its files")

// Gate cuts a database off from its files, so that another one can use them: what is left of a failed one, on
// goroutines that nobody can end, changes nothing any more. Reads go on. Safe for concurrent use.
type Gate struct {
	mu      sync.Mutex // not held over a change
	changes int        // under way
	shut    bool
	ended   chan struct{} // made by Shut, closed when the last change has ended
}

// Sever shuts the gate for ever. It is false when changes that began before are still under way after patience.
func (g *Gate) Sever(patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-g.Shut():
		return true
	case <-timer.C:
		return false
	}
}

// Shut shuts the gate for ever, and does not wait. ended is closed once no change is under way.
func (g *Gate) Shut() (ended <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	if g.ended == nil {
		g.ended = make(chan struct{})
		if g.changes == 0 {
			close(g.ended)
		}
	}
	return g.ended
}

// enter begins a change, which leave ends.
func (g *Gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return ErrSevered
	}
	g.changes++
	return nil
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changes--; g.changes == 0 && g.shut {
		close(g.ended)
	}
}

func (g *Gate) change(f func() error) error {
	if err := g.enter(); err != nil {
		return err
	}
	defer g.leave()
	return f()
}

// gatedFS changes files while the gate is open.
type gatedFS struct {
	vfs.FS
	gate *Gate
}

func (s gatedFS) open(open func() (vfs.File, error)) (vfs.File, error) {
	if err := s.gate.enter(); err != nil {
		return nil, err
	}
	defer s.gate.leave()
	f, err := open()
	if err != nil {
		return nil, err
	}
	return &gatedFile{f, s.gate}, nil
}

// Create implements vfs.FS.
func (s gatedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return s.open(func() (vfs.File, error) { return s.FS.Create(name, category) })
}

// OpenReadWrite implements vfs.FS.
func (s gatedFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return s.open(func() (vfs.File, error) { return s.FS.OpenReadWrite(name, category, opts...) })
}

// ReuseForWrite implements vfs.FS.
func (s gatedFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return s.open(func() (vfs.File, error) { return s.FS.ReuseForWrite(oldname, newname, category) })
}

// Link implements vfs.FS.
func (s gatedFS) Link(oldname, newname string) error {
	return s.gate.change(func() error { return s.FS.Link(oldname, newname) })
}

// Remove implements vfs.FS.
func (s gatedFS) Remove(name string) error {
	return s.gate.change(func() error { return s.FS.Remove(name) })
}

// RemoveAll implements vfs.FS.
func (s gatedFS) RemoveAll(name string) error {
	return s.gate.change(func() error { return s.FS.RemoveAll(name) })
}

// Rename implements vfs.FS.
func (s gatedFS) Rename(oldname, newname string) error {
	return s.gate.change(func() error { return s.FS.Rename(oldname, newname) })
}

// MkdirAll implements vfs.FS.
func (s gatedFS) MkdirAll(dir string, perm os.FileMode) error {
	return s.gate.change(func() error { return s.FS.MkdirAll(dir, perm) })
}

// Lock implements vfs.FS. The store's directory is locked by its owner; a lock of the database's own would outlive a
// database that cannot be closed.
func (s gatedFS) Lock(string) (io.Closer, error) { return unlocked{}, nil }

type unlocked struct{}

func (unlocked) Close() error { return nil }

// gatedFile is written while the gate is open.
type gatedFile struct {
	vfs.File
	gate *Gate
}

// Write implements vfs.File.
func (f *gatedFile) Write(b []byte) (int, error) {
	if err := f.gate.enter(); err != nil {
		return 0, err
	}
	defer f.gate.leave()
	return f.File.Write(b)
}

// WriteAt implements vfs.File.
func (f *gatedFile) WriteAt(b []byte, at int64) (int, error) {
	if err := f.gate.enter(); err != nil {
		return 0, err
	}
	defer f.gate.leave()
	return f.File.WriteAt(b, at)
}

// Preallocate implements vfs.File.
func (f *gatedFile) Preallocate(offset, length int64) error {
	return f.gate.change(func() error { return f.File.Preallocate(offset, length) })
}

// Sync implements vfs.File.
func (f *gatedFile) Sync() error {
	if err := f.gate.enter(); err != nil {
		return err
	}
	defer f.gate.leave()
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f *gatedFile) SyncData() error {
	if err := f.gate.enter(); err != nil {
		return err
	}
	defer f.gate.leave()
	return f.File.SyncData()
}

// SyncTo implements vfs.File.
func (f *gatedFile) SyncTo(length int64) (full bool, err error) {
	if err := f.gate.enter(); err != nil {
		return false, err
	}
	defer f.gate.leave()
	return f.File.SyncTo(length)
}
