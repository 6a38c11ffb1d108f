package pebble

import (
	"path"
	"sync/atomic"
	"time"

	engine "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Bounds of the pause before the engine makes a table again after a flush or a compaction failed.
const (
	minFlushPause = 50 * time.Millisecond
	maxFlushPause = time.Second
)

// retry slows down the engine, which repeats a failed flush or compaction at once, for ever. The engine reports the
// failure under its own lock, where a pause would hold up every call. So the pause is before the next table is made,
// where the engine holds no lock: once for each failure. Safe for concurrent use.
type retry struct {
	log  *logger
	stop <-chan struct{} // ends a pause
	next atomic.Int64    // of the next failure, a duration; 0: minFlushPause
	due  atomic.Int64    // before the next table, a duration
}

// listener tells the retry of failures and successes.
func (r *retry) listener() *engine.EventListener {
	return &engine.EventListener{
		BackgroundError: r.failed,
		FlushEnd: func(info engine.FlushInfo) {
			if info.Err == nil {
				r.worked()
			}
		},
		CompactionEnd: func(info engine.CompactionInfo) {
			if info.Err == nil {
				r.worked()
			}
		},
	}
}

// failed lets the next table wait: 50 ms after the first failure, then twice as long each time, up to a second.
func (r *retry) failed(err error) {
	pause := max(minFlushPause, time.Duration(r.next.Load()))
	r.due.Store(int64(pause))
	r.next.Store(int64(min(2*pause, maxFlushPause)))
	r.log.Errorf("a flush or compaction failed and is tried again: %s", err)
}

func (r *retry) worked() {
	r.next.Store(0)
	r.due.Store(0)
	r.log.worked()
}

// pause waits as long as the last failure demands.
func (r *retry) pause() {
	due := time.Duration(r.due.Swap(0))
	if due == 0 {
		return
	}
	timer := time.NewTimer(due)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.stop:
	}
}

// pacedDisk makes tables after the pause of its retry.
type pacedDisk struct {
	vfs.FS
	retry *retry
}

// Create implements vfs.FS.
func (d pacedDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if path.Ext(name) == ".sst" {
		d.retry.pause()
	}
	return d.FS.Create(name, c)
}

// Unwrap implements vfs.FS.
func (d pacedDisk) Unwrap() vfs.FS { return d.FS }
