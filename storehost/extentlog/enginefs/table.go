package enginefs

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// How slowly a table is written while there is time: with a pause after each step, which makes 16 MiB last a third of a
// second. Not if the log takes nearly as much meanwhile, nor if it lately took paceMost, for then the next memtable is
// full before.
const (
	paceStep  = 64 << 10
	pacePause = time.Millisecond
	paceLead  = 1.25     // bytes of a table for each that the log takes meanwhile
	paceMost  = 64 << 20 // bytes a second
	paceLook  = 100 * time.Millisecond
)

// intake is how much the log had taken at a time, and how fast by then.
type intake struct {
	mu    sync.Mutex
	at    time.Time
	taken int64
	rate  float64 // bytes a second
}

// busy reports whether the log lately took so much that tables have to be fast.
func (i *intake) busy(now time.Time, taken int64) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if since := now.Sub(i.at); since >= paceLook {
		i.rate = float64(taken-i.taken) / since.Seconds()
		i.at, i.taken = now, taken
	}
	return i.rate > paceMost
}

// table is written by one goroutine, with pauses. A memtable written as fast as it goes keeps a processor and the disk
// busy for a tenth of a second, every time one is full, and appends take five times as long meanwhile: of a load that
// fills one in a second, that is the slowest tenth. Nothing waits for a table, as long as it is done before the next
// memtable is full.
type table struct {
	vfs.File
	o       Options
	began   int64 // what was taken then
	written int64
	paused  int64 // written by the last pause
}

// Write implements vfs.File.
func (f *table) Write(b []byte) (int, error) {
	if steps := (f.written - f.paused) / paceStep; steps > 0 {
		f.paused = f.written
		for ; steps > 0 && f.early() && !f.o.Hurry(); steps-- {
			f.pause(pacePause)
		}
	}
	n, err := f.File.Write(b)
	f.written += int64(n)
	return n, err
}

// early is that the log leaves it time.
func (f *table) early() bool { return float64(f.written) >= paceLead*float64(f.o.Taken()-f.began) }

func (f *table) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.o.Stop:
	}
}

// readTries is how often a read of a table is tried: an error that passes costs nothing then.
const readTries = 3

// readTable tells of reads that fail.
type readTable struct {
	vfs.File
	name   string
	unread func(name string, err error)
}

// ReadAt implements vfs.File.
func (f *readTable) ReadAt(b []byte, at int64) (n int, err error) {
	for range readTries {
		if n, err = f.File.ReadAt(b, at); err == nil || n == len(b) && errors.Is(err, io.EOF) {
			return n, err
		}
	}
	f.unread(f.name, err)
	return n, err
}
