package extentlog

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// How slowly a table is written while there is time: with a pause after each step, which makes 16 MiB last a third of a second. Not if the log takes nearly
// as much meanwhile, nor if it lately took paceMost, for then the next memtable is full before.
const (
	paceStep  = 64 << 10
	pacePause = time.Millisecond
	paceLead  = 1.25     // bytes of a table for each that the log takes meanwhile
	paceMost  = 64 << 20 // bytes a second
	paceLook  = 100 * time.Millisecond
)

// pacedFS spreads out the writing of tables. A memtable written as fast as it goes keeps a processor and the disk busy for a tenth of a second, every time
// one is full, and appends take five times as long meanwhile: of a load that fills one in a second, that is the slowest tenth. Nothing
// waits for a table, as long as it is done before the next memtable is full.
type pacedFS struct {
	vfs.FS
	taken *atomic.Int64   // bytes ever given to the database
	stop  <-chan struct{} // closed when it shall be fast

	mu   *sync.Mutex
	last *intake
}

// intake is how much the log had taken at a time, and how fast by then.
type intake struct {
	at    time.Time
	taken int64
	rate  float64 // bytes a second
}

func newPacedFS(fs vfs.FS, taken *atomic.Int64, stop <-chan struct{}) pacedFS {
	return pacedFS{FS: fs, taken: taken, stop: stop, mu: new(sync.Mutex), last: new(intake)}
}

// Create implements vfs.FS.
func (p pacedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.Create(name, category)
	if err != nil || !strings.HasSuffix(name, ".sst") || p.busy(time.Now()) {
		return f, err
	}
	return &pacedFile{File: f, fs: p, began: p.taken.Load()}, nil
}

// busy reports whether the log lately took so much that tables have to be fast.
func (p pacedFS) busy(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := now.Sub(p.last.at); since >= paceLook {
		taken := p.taken.Load()
		*p.last = intake{at: now, taken: taken, rate: float64(taken-p.last.taken) / since.Seconds()}
	}
	return p.last.rate > paceMost
}

// pacedFile is one table, written by one goroutine.
type pacedFile struct {
	vfs.File
	fs      pacedFS
	began   int64 // what was taken then
	written int64
	paused  int64 // written by the last pause
}

// Write implements vfs.File.
func (f *pacedFile) Write(b []byte) (int, error) {
	if steps := (f.written - f.paused) / paceStep; steps > 0 {
		f.paused = f.written
		if float64(f.written) >= paceLead*float64(f.fs.taken.Load()-f.began) {
			f.pause(time.Duration(steps) * pacePause)
		}
	}
	n, err := f.File.Write(b)
	f.written += int64(n)
	return n, err
}

func (f *pacedFile) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.fs.stop:
	}
}
