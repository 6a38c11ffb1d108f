package enginefs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Overlay is a file system that shows the files of another one and keeps all changes in memory: for a database that is
// opened on a full disk, and writes to be opened. A file that is changed in part is copied first. Safe for concurrent
// use, but for changes of one file by two names.
func Overlay(under vfs.FS) vfs.FS {
	return &overlay{FS: under, memory: vfs.NewMem(), gone: make(map[string]struct{})}
}

// overlay is files in memory above files under it. The embedded one answers what concerns names alone, and the usage of
// the disk.
type overlay struct {
	vfs.FS
	memory vfs.FS
	mu     sync.Mutex
	gone   map[string]struct{} // removed, of the files below
}

func (o *overlay) inMemory(name string) bool {
	_, err := o.memory.Stat(name)
	return err == nil
}

func (o *overlay) isGone(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, gone := o.gone[name]
	return gone
}

// place is the file system that has the file; nil: there is none.
func (o *overlay) place(name string) vfs.FS {
	switch {
	case o.inMemory(name):
		return o.memory
	case o.isGone(name):
		return nil
	}
	return o.FS
}

func notThere(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// Create implements vfs.FS.
func (o *overlay) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := o.memory.MkdirAll(o.PathDir(name), 0o755); err != nil {
		return nil, err
	}
	return o.memory.Create(name, category)
}

// Open implements vfs.FS.
func (o *overlay) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	at := o.place(name)
	if at == nil {
		return nil, notThere("open", name)
	}
	return at.Open(name, opts...)
}

// OpenReadWrite implements vfs.FS.
func (o *overlay) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if !o.inMemory(name) {
		if err := o.copyTo(name, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if err := o.memory.MkdirAll(o.PathDir(name), 0o755); err != nil {
		return nil, err
	}
	return o.memory.OpenReadWrite(name, category, opts...)
}

// OpenDir implements vfs.FS.
func (o *overlay) OpenDir(name string) (vfs.File, error) {
	if err := o.memory.MkdirAll(name, 0o755); err != nil {
		return nil, err
	}
	return o.memory.OpenDir(name)
}

// Remove implements vfs.FS.
func (o *overlay) Remove(name string) error {
	at := o.place(name)
	if at == nil {
		return notThere("remove", name)
	}
	if at == o.memory {
		if err := o.memory.Remove(name); err != nil {
			return err
		}
	} else if _, err := o.FS.Stat(name); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone[name] = struct{}{}
	return nil
}

// RemoveAll implements vfs.FS. The database removes files, no directories.
func (o *overlay) RemoveAll(name string) error {
	return &fs.PathError{Op: "remove all", Path: name, Err: errors.ErrUnsupported}
}

// Rename implements vfs.FS.
func (o *overlay) Rename(oldname, newname string) error {
	if err := o.Link(oldname, newname); err != nil {
		return err
	}
	return o.Remove(oldname)
}

// Link implements vfs.FS by a copy.
func (o *overlay) Link(oldname, newname string) error { return o.copyTo(oldname, newname) }

// ReuseForWrite implements vfs.FS.
func (o *overlay) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := o.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return o.memory.OpenReadWrite(newname, category)
}

// MkdirAll implements vfs.FS.
func (o *overlay) MkdirAll(dir string, perm os.FileMode) error { return o.memory.MkdirAll(dir, perm) }

// Lock implements vfs.FS: files in memory have one user.
func (o *overlay) Lock(string) (io.Closer, error) { return unlocked{}, nil }

// List implements vfs.FS.
func (o *overlay) List(dir string) ([]string, error) {
	all := make(map[string]struct{})
	below, err := o.FS.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	above, aboveErr := o.memory.List(dir)
	if err != nil && aboveErr != nil {
		return nil, err
	}
	for _, name := range below {
		if !o.isGone(o.PathJoin(dir, name)) {
			all[name] = struct{}{}
		}
	}
	for _, name := range above {
		all[name] = struct{}{}
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// Stat implements vfs.FS.
func (o *overlay) Stat(name string) (vfs.FileInfo, error) {
	at := o.place(name)
	if at == nil {
		return nil, notThere("stat", name)
	}
	return at.Stat(name)
}

// Unwrap implements vfs.FS.
func (o *overlay) Unwrap() vfs.FS { return o.FS }

// copyTo makes a file in memory with the bytes of another one.
func (o *overlay) copyTo(from, to string) error {
	source, err := o.Open(from)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(source)
	if err = errors.Join(err, source.Close()); err != nil {
		return err
	}
	target, err := o.Create(to, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = target.Write(b)
	return errors.Join(err, target.Close())
}
