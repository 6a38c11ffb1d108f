package extentlog

import (
	"io/fs"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// quota is a disk in memory of so many bytes, which other programs use, too. A write for which there is no room fails
// and writes nothing.
type quota struct {
	vfs.FS
	total int64
	mu    sync.Mutex
	used  int64            // by files
	other int64            // by other programs
	most  int64            // ever used by files
	peak  map[string]int64 // of that, by the extension of the file
	wrote map[string]int64 // bytes, by the extension of the file
	files map[string]*quotaFile
}

// quotaFile is what a file takes, which may have several names.
type quotaFile struct {
	size  int64
	names int
}

func newQuota(total int64) *quota {
	return &quota{FS: vfs.NewMem(), total: total, files: make(map[string]*quotaFile), wrote: make(map[string]int64)}
}

// leave has other programs use all but so many bytes of what is free.
func (q *quota) leave(bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.other = max(q.total-q.used-bytes, 0)
}

// GetDiskUsage implements vfs.FS.
func (q *quota) GetDiskUsage(string) (vfs.DiskUsage, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	free := uint64(max(q.total-q.used-q.other, 0))
	return vfs.DiskUsage{TotalBytes: uint64(q.total), AvailBytes: free, UsedBytes: uint64(q.total) - free}, nil
}

func (q *quota) count(kind string, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wrote[kind] += int64(bytes)
}

const quotaBlock = 4 << 10

// grow makes a file as large as that.
func (q *quota) grow(f *quotaFile, size int64) error {
	size = (size + quotaBlock - 1) / quotaBlock * quotaBlock
	q.mu.Lock()
	defer q.mu.Unlock()
	more := size - f.size
	if more <= 0 {
		return nil
	}
	if q.used+more > q.total-q.other {
		return syscall.ENOSPC
	}
	f.size = size
	q.used += more
	if q.used > q.most {
		q.most = q.used
		q.peak = make(map[string]int64)
		for name, f := range q.files {
			q.peak[path.Ext(name)] += f.size
		}
	}
	return nil
}

func (q *quota) dropLocked(name string) {
	f := q.files[name]
	if f == nil {
		return
	}
	delete(q.files, name)
	if f.names--; f.names == 0 {
		q.used -= f.size
	}
}

// Create implements vfs.FS.
func (q *quota) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := q.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropLocked(name)
	q.files[name] = &quotaFile{names: 1}
	return &quotaHandle{File: f, of: q, file: q.files[name], kind: path.Ext(name)}, nil
}

// OpenReadWrite implements vfs.FS.
func (q *quota) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := q.FS.OpenReadWrite(name, category, opts...)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.files[name] == nil {
		q.files[name] = &quotaFile{names: 1}
	}
	return &quotaHandle{File: f, of: q, file: q.files[name], kind: path.Ext(name)}, nil
}

// ReuseForWrite implements vfs.FS.
func (q *quota) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := q.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return q.OpenReadWrite(newname, category)
}

// Link implements vfs.FS.
func (q *quota) Link(oldname, newname string) error {
	if err := q.FS.Link(oldname, newname); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if f := q.files[oldname]; f != nil {
		f.names++
		q.files[newname] = f
	}
	return nil
}

// Rename implements vfs.FS.
func (q *quota) Rename(oldname, newname string) error {
	if err := q.FS.Rename(oldname, newname); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropLocked(newname)
	for name, f := range q.files {
		if rest, below := strings.CutPrefix(name, oldname); below && (rest == "" || rest[0] == '/') {
			delete(q.files, name)
			q.files[newname+rest] = f
		}
	}
	return nil
}

// Remove implements vfs.FS.
func (q *quota) Remove(name string) error {
	if err := q.FS.Remove(name); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropLocked(name)
	return nil
}

// RemoveAll implements vfs.FS.
func (q *quota) RemoveAll(name string) error {
	if _, err := q.FS.Stat(name); err != nil {
		return fs.ErrNotExist
	}
	if err := q.FS.RemoveAll(name); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for file := range q.files {
		if file == name || strings.HasPrefix(file, name+"/") {
			q.dropLocked(file)
		}
	}
	return nil
}

// Unwrap implements vfs.FS.
func (q *quota) Unwrap() vfs.FS { return q.FS }

type quotaHandle struct {
	vfs.File
	of   *quota
	file *quotaFile
	kind string
	mu   sync.Mutex
	at   int64
}

// Write implements vfs.File.
func (h *quotaHandle) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.of.grow(h.file, h.at+int64(len(b))); err != nil {
		return 0, err
	}
	h.at += int64(len(b))
	h.of.count(h.kind, len(b))
	return h.File.Write(b)
}

// WriteAt implements vfs.File.
func (h *quotaHandle) WriteAt(b []byte, at int64) (int, error) {
	if err := h.of.grow(h.file, at+int64(len(b))); err != nil {
		return 0, err
	}
	h.of.count(h.kind, len(b))
	return h.File.WriteAt(b, at)
}
