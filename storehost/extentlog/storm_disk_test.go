package extentlog

import (
	"math/rand/v2"
	"path"
	"runtime"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// tornBlock is what a disk writes whole or not at all.
const tornBlock = 4 << 10

// stormDisk is a disk that loses its power once, before some change of a file. Of what was written to segments and not
// synced, any blocks may be on it then. Of other files only what was synced is.
type stormDisk struct {
	*vfs.MemFS
	mu     sync.Mutex
	random *rand.Rand
	left   int                // changes until the power goes; 0: it stays, or went
	cut    func() (on func()) // called before it goes: on is called behind it
	after  *vfs.MemFS         // the disk then
	files  map[*tornFile]struct{}
}

func newStormDisk(fs *vfs.MemFS, random *rand.Rand, left int, cut func() func()) *stormDisk {
	return &stormDisk{MemFS: fs, random: random, left: left, cut: cut, files: make(map[*tornFile]struct{})}
}

// fs is the disk as a log uses it.
func (d *stormDisk) fs() vfs.FS {
	return errorfs.Wrap(d, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			d.change()
		}
		return nil
	}))
}

// change comes before each change of a file.
func (d *stormDisk) change() {
	d.mu.Lock()
	yields := 0
	if d.random.IntN(8) == 0 {
		yields = d.random.IntN(50)
	}
	goes := d.left == 1
	if d.left > 0 {
		d.left--
	}
	d.mu.Unlock()
	if goes {
		d.lose()
	}
	for range yields { // others go first, in another order each time
		runtime.Gosched()
	}
}

// lose cuts the power off, now; what the log writes from here on is in vain.
func (d *stormDisk) lose() {
	on := d.cut()
	defer on()
	d.mu.Lock()
	defer d.mu.Unlock()
	share := []int{0, 10, 50, 90, 100}[d.random.IntN(5)]
	for f := range d.files {
		f.mu.Lock()
		f.tearLocked(d.random, share)
	}
	d.after = d.MemFS.CrashClone(vfs.CrashCloneCfg{})
	for f := range d.files {
		f.mu.Unlock()
	}
}

// OpenReadWrite implements vfs.FS.
func (d *stormDisk) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.MemFS.OpenReadWrite(name, c, opts...)
	if err != nil || path.Ext(name) != ".seg" {
		return f, err
	}
	t := &tornFile{File: f, disk: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[t] = struct{}{}
	return t, nil
}

// tornFile holds back what was written since its last sync.
type tornFile struct {
	vfs.File
	disk  *stormDisk
	mu    sync.Mutex
	later []tornWrite
}

type tornWrite struct {
	b  []byte
	at int64
}

// tearLocked has some blocks of what was not synced on the disk.
func (f *tornFile) tearLocked(random *rand.Rand, share int) {
	some := false
	for _, w := range f.later {
		for from := 0; from < len(w.b); from += tornBlock {
			if random.IntN(100) >= share {
				continue
			}
			some = true
			if _, err := f.File.WriteAt(w.b[from:min(from+tornBlock, len(w.b))], w.at+int64(from)); err != nil {
				panic(err) // a file in memory takes all
			}
		}
	}
	if some {
		if err := f.File.Sync(); err != nil {
			panic(err)
		}
	}
}

// WriteAt implements vfs.File.
func (f *tornFile) WriteAt(b []byte, at int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.later = append(f.later, tornWrite{slices.Clone(b), at})
	return len(b), nil
}

// ReadAt implements vfs.File.
func (f *tornFile) ReadAt(b []byte, at int64) (int, error) {
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
func (f *tornFile) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.later {
		if _, err := f.File.WriteAt(w.b, w.at); err != nil {
			return err
		}
	}
	f.later = nil
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f *tornFile) SyncData() error { return f.Sync() }

// Close implements vfs.File. The kernel writes what was not synced.
func (f *tornFile) Close() error {
	if err := f.Sync(); err != nil {
		return err
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	delete(f.disk.files, f)
	return f.File.Close()
}
