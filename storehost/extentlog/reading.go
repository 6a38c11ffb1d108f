package extentlog

import (
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
)

// maxStuckReads is how many reads may wait for a disk that answers none: each keeps a goroutine and a thread of the
// system, while its caller has left and tries again.
const maxStuckReads = 64

// reads are those of the database that are under way.
type reads struct {
	underway atomic.Int64
	ended    atomic.Int64 // unix ns when one ended last, or began while there was none
}

func (r *reads) begin(now time.Time) {
	if r.underway.Add(1) == 1 {
		r.ended.Store(now.UnixNano())
	}
}

func (r *reads) end(now time.Time) {
	r.ended.Store(now.UnixNano())
	r.underway.Add(-1)
}

// hang is for how long none of many reads has ended; 0 while there are few.
func (r *reads) hang(now time.Time) time.Duration {
	if r.underway.Load() < maxStuckReads {
		return 0
	}
	return max(now.Sub(time.Unix(0, r.ended.Load())), 0)
}

// reading keeps the database open until the returned function is called. It refuses while many reads hang.
func (e *Engine) reading() (done func(), err error) {
	if hang := e.reads.hang(time.Now()); hang >= HangsAt {
		return nil, core.Errorf(core.CodeUnavailable, "the store's disk has answered no read for %s; try again, or use another store", hang.Round(time.Second))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.closed {
		return nil, errClosed()
	}
	if e.mu.suspended {
		return nil, core.Errorf(core.CodeUnavailable, "the store opens its database anew; try again")
	}
	e.mu.readers.Add(1)
	e.reads.begin(time.Now())
	return func() {
		e.reads.end(time.Now())
		e.mu.readers.Done()
	}, nil
}
