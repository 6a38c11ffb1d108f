// Package memdisk owns disks in memory for the logs of stores: they outlive the processes that use them, lose what a
// crash loses, fill up and break.
package memdisk

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/storehost/extentlog"
)

// Dir is where a log is on its disk.
const Dir = "store"

// journal is the extension of the files that each append is written to.
const journal = ".seg"

// ring is how large the journals of a disk are together, unless a process says another size: they are used again soon.
const ring = 256 << 10

// Disk outlives the processes that use it, one after another, and can be damaged. A process that is killed goes on with
// a disk that nobody looks at any more. Safe for concurrent use, but for opening and damaging it.
type Disk struct {
	mu    sync.Mutex
	fs    *crashable
	slow  atomic.Int64 // ns that each sync of the journal takes longer
	syncs atomic.Int64 // until the disk fails; not counted when it is below 1
	fails func()       // called once when it does
	gone  chan struct{}
	size  atomic.Int64 // bytes; 0: it does not say
	full  atomic.Bool
	once  atomic.Pointer[string] // a part of the name of the file of which the next write or sync fails
	broke atomic.Bool            // every write, sync and making of a file fails
	hangs atomic.Pointer[chan struct{}]
}

// Hang has every read, write, sync and making of a file wait until release is called, once.
func (d *Disk) Hang() (release func()) {
	released := make(chan struct{})
	d.hangs.Store(&released)
	return func() {
		d.hangs.Store(nil)
		close(released)
	}
}

func (d *Disk) awaitRelease(op errorfs.Op) {
	switch op.Kind {
	case errorfs.OpCreate, errorfs.OpFileRead, errorfs.OpFileReadAt, errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		if released := d.hangs.Load(); released != nil {
			<-*released
		}
	}
}

// FailOnce has the next write or sync of a file whose name has this part fail with EIO.
func (d *Disk) FailOnce(part string) { d.once.Store(&part) }

// FailAll has every write, sync and making of a file fail with EIO until it is called with false.
func (d *Disk) FailAll(fail bool) { d.broke.Store(fail) }

// fault is how an operation fails; nil when it does not.
func (d *Disk) fault(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpCreate:
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpFileWrite, errorfs.OpFileWriteAt:
		if part := d.once.Load(); part != nil && strings.Contains(path.Base(op.Path), *part) && d.once.CompareAndSwap(part, nil) {
			return syscall.EIO
		}
	default:
		return nil
	}
	if d.broke.Load() {
		return syscall.EIO
	}
	return nil
}

// New is an empty disk. It does not say how large it is before it is filled for the first time.
func New() *Disk { return &Disk{fs: newCrashable(vfs.NewCrashableMem())} }

// Open opens the log on it, making it if there is none.
func (d *Disk) Open(o extentlog.Options) (extentlog.Log, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	gone := make(chan struct{})
	d.gone = gone
	o.Ring = cmp.Or(o.Ring, ring)
	o.FS = space{d, errorfs.Wrap(d.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		d.awaitRelease(op)
		if err := d.fault(op); err != nil || path.Ext(op.Path) != journal {
			return err
		}
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			d.sync(gone)
		}
		return nil
	}))}
	return extentlog.Open(Dir, o)
}

// sync comes before a sync of the journal. On a disk that fails, it does not return before the process is gone: its
// sync never was.
func (d *Disk) sync(gone chan struct{}) {
	if wait := d.slow.Load(); wait > 0 {
		select {
		case <-time.After(time.Duration(wait)):
		case <-gone:
		}
	}
	if d.syncs.Load() > 0 && d.syncs.Add(-1) == 0 {
		d.fails()
		<-gone
	}
}

// Slow makes each sync of the journal take longer, until it is called with 0.
func (d *Disk) Slow(by time.Duration) { d.slow.Store(int64(by)) }

// FailAt makes the n-th sync of the journal from now on the last thing that the process does to the disk, as an error
// of the device would: failed is called, on the process's goroutine, and must see to it that Crash or Cut is. 0 calls
// it off.
func (d *Disk) FailAt(n int, failed func()) {
	d.syncs.Store(0)
	d.fails = failed
	d.syncs.Store(int64(n))
}

// filledSize is how large a disk is that was filled: with room for all that the log keeps in reserve.
const filledSize = 64 << 30

// Fill has the disk say that it is full, or that all of it is free again. The log looks once a second.
func (d *Disk) Fill(full bool) {
	d.full.Store(full)
	d.size.Store(filledSize)
}

// space is the disk's file system, which says how full the disk is.
type space struct {
	disk *Disk
	vfs.FS
}

func (s space) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	size := uint64(s.disk.size.Load())
	switch {
	case size == 0:
		return s.FS.GetDiskUsage(path)
	case s.disk.full.Load():
		return vfs.DiskUsage{TotalBytes: size, UsedBytes: size}, nil
	}
	return vfs.DiskUsage{TotalBytes: size, AvailBytes: size}, nil
}

// Crash leaves the disk as it is when its process is killed: what was written stays.
func (d *Disk) Crash() { d.lose(100) }

// Cut leaves the disk as a power cut does: what was not synced is gone.
func (d *Disk) Cut() { d.lose(0) }

func (d *Disk) lose(kept int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fs = d.fs.crash(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rand.New(rand.NewPCG(1, 1))})
	d.syncs.Store(0)
	if d.gone != nil {
		close(d.gone)
		d.gone = nil
	}
}

// Wipe replaces the disk by an empty one. No process uses it.
func (d *Disk) Wipe() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fs = newCrashable(vfs.NewCrashableMem())
}

// Damage flips a bit of a file of the database, or cuts its end off, and says which; "" when there is none. No process
// uses it.
func (d *Disk) Damage(random *rand.Rand) (what string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var files []string
	for _, home := range []string{d.fs.PathJoin(Dir, "log"), d.fs.PathJoin(Dir, "ring")} {
		names, err := d.fs.List(home)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		for _, name := range names {
			if ext := path.Ext(name); ext == ".sst" || ext == journal {
				files = append(files, d.fs.PathJoin(home, name))
			}
		}
	}
	if len(files) == 0 {
		return "", nil
	}
	name := files[random.IntN(len(files))]
	b, err := d.read(name)
	if err != nil || len(b) == 0 {
		return "", err
	}
	at := random.IntN(len(b))
	if random.IntN(2) == 0 {
		what, b = name+" is cut", b[:at]
	} else {
		what = name + " has a bit flipped"
		b[at/2] ^= 1 << random.IntN(8) // in the first half: the records. Pebble looks at its own blocks, at the end, without a pause.
	}
	return what, d.write(name, b)
}

// FlipAll flips a bit of each file, and returns how many there are. No process uses the disk.
func (d *Disk) FlipAll(random *rand.Rand) (files int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, home := range []string{Dir, d.fs.PathJoin(Dir, "log"), d.fs.PathJoin(Dir, "ring")} {
		names, err := d.fs.List(home)
		if err != nil {
			return files, err
		}
		for _, name := range names {
			name = d.fs.PathJoin(home, name)
			info, err := d.fs.Stat(name)
			if err != nil {
				return files, err
			}
			if info.IsDir() || info.Size() == 0 {
				continue
			}
			b, err := d.read(name)
			if err == nil {
				b[random.IntN(len(b))] ^= 1 << random.IntN(8)
				err = d.write(name, b)
			}
			if err != nil {
				return files, err
			}
			files++
		}
	}
	return files, nil
}

func (d *Disk) read(name string) ([]byte, error) {
	f, err := d.fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func (d *Disk) write(name string, b []byte) error {
	f, err := d.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}
