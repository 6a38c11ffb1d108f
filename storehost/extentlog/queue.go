package extentlog

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/ring"
	"github.com/columbamq/columba/wire"
)

// Window is how many bytes of one extent may wait for the disk; one larger batch waits alone.
const Window = 16 << 20

// Bounds of what waits, and of what is taken at once. While more than half of what may wait does, an extent with more
// than its fair share is refused, so that a few busy ones leave room for many quiet ones. A group stays under half of a
// memtable, above which Pebble would take another, slower path.
const (
	maxPendingBytes = 256 << 20
	fairShare       = 1 << 20
	maxGroupBytes   = maxMemtable / 16 * 7
	maxControls     = 256 // of one round: some read batches
)

// request is one step of the log in the order of its arrival: an append, or whatever stage and answer do.
type request struct {
	appending
	bytes   int           // that wait, of the extent if there is one
	index   int           // bytes that are written beside them
	control bool          // goes before all data: it writes rows, and no batches
	fences  core.ExtentID // of a control: appends to the extent that wait are taken with it, behind it, and so refused
	alone   bool          // of data: it reads batches, so that no other data may be staged beside it
	// stage checks the request against the next state and adds to the group; on error it has added nothing.
	stage func(*group) error
	// answer is called once with the outcome, in order, on settleLoop's goroutine; it must not block.
	answer func(error)
}

// appending is an append, without a closure for each; none when done is nil.
type appending struct {
	extent *extent
	batch  []byte
	done   Appended
	last   core.Seq // durable with it; set when staged
}

func (r *request) staged(e *Engine, g *group) error {
	if r.done == nil {
		return r.stage(g)
	}
	err := e.stageAppend(g, r.extent, r.batch)
	r.last = r.extent.next.last
	return err
}

func (r *request) answered(err error) {
	switch {
	case r.done == nil:
		r.answer(err)
	case err != nil:
		r.done(0, err)
	default:
		r.done(r.last, nil)
	}
}

// group is what one sync makes durable.
type group struct {
	batch   *pebble.Batch // rows
	written ring.Group    // of a journal
	touched []change
	appends []staged
	removed []core.ExtentID
	lifted  []*extent // whose quarantine ends
}

// change is what a group makes of an extent.
type change struct {
	extent    *extent
	after     durable
	truncated bool
	deletes   bool // a range of batches, in the database
	cut       int  // of what the extent holds; 0: nothing was cut off
}

type staged struct {
	extent *extent
	batch  wire.Batch
	timer  bool
}

// touch notes that next of x differs from what is published. The change is valid until another extent is touched.
func (g *group) touch(x *extent) *change {
	if x.staged != g {
		x.staged, x.change = g, len(g.touched)
		g.touched = append(g.touched, change{extent: x})
	}
	return &g.touched[x.change]
}

// queue holds requests until they are answered, in two lanes: controls (open, fence, seal, remove), and data (appends,
// copies), which may be worth seconds of a slow disk. Controls go first. An append that is overtaken by the fence of
// its extent is refused: nobody was promised that it is stored. Bounded in bytes; requests without bytes are bounded by
// the streams and calls that wait for their answers.
type queue struct {
	mu struct {
		sync.Mutex
		controls []request
		data     []request
		bytes    int
		closed   bool
		pace     pace
		room     chan struct{} // closed when less waits; nil: nobody waits for it
	}
	limit  int           // of bytes
	window int           // of one extent's
	share  int           // of one extent's while much waits
	wake   chan struct{} // capacity 1
}

func newQueue() *queue {
	q := &queue{limit: maxPendingBytes, window: Window, share: fairShare, wake: make(chan struct{}, 1)}
	q.setMost(maxGroupBytes)
	return q
}

// setMost bounds the bytes of one round.
func (q *queue) setMost(bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.pace = newPace(bytes)
}

// settled notes how long a round took until it was durable.
func (q *queue) settled(bytes int, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.pace.settled(bytes, took)
}

type offered uint8

const (
	offerTaken offered = iota
	offerFull
	offerClosed
)

// full reports whether the request's bytes do not fit: of all, or of its extent.
func (q *queue) full(r request) bool {
	if r.bytes == 0 {
		return false
	}
	own := 0
	if r.extent != nil {
		own = r.extent.waiting
	}
	return q.mu.bytes+r.bytes > q.limit || own > 0 && own+r.bytes > q.window || own > q.share && q.mu.bytes > q.limit/2
}

// offer adds a request. A request without bytes always fits.
func (q *queue) offer(r request) offered {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.mu.closed:
		return offerClosed
	case q.full(r):
		return offerFull
	}
	lane := &q.mu.data
	if r.control {
		lane = &q.mu.controls
	}
	*lane = append(*lane, r)
	q.mu.bytes += r.bytes
	if r.extent != nil {
		r.extent.waiting += r.bytes
	}
	q.notify()
	return offerTaken
}

func (q *queue) notify() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// close lets no more in; tryTake drains what is there.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.closed = true
	q.notify()
}

// abandon closes it and takes out what was not taken.
func (q *queue) abandon() []request {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.closed = true
	waiting := append(q.mu.controls, q.mu.data...)
	q.mu.controls, q.mu.data = nil, nil
	q.notify()
	return waiting
}

// tryTake takes controls, the appends that their fences refuse, and as much data as the pace allows. closed: there will
// be none any more.
func (q *queue) tryTake(into []request) (round []request, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.mu.controls), maxControls)
	into = append(into, q.mu.controls[:n]...)
	q.mu.controls = slices.Delete(q.mu.controls, 0, n)
	into = q.withdrawLocked(into)
	bytes, taken := 0, 0
	for _, r := range q.mu.data {
		if taken > 0 && (r.alone || q.mu.data[0].alone || bytes+r.bytes+r.index > q.mu.pace.now) {
			break
		}
		taken++
		bytes += r.bytes + r.index
	}
	into = append(into, q.mu.data[:taken]...)
	q.mu.data = slices.Delete(q.mu.data, 0, taken)
	return into, q.mu.closed && len(into) == 0
}

// withdrawLocked takes the appends to the extents that a control fences. Copies stay: the extent is fenced for them
// anyway.
func (q *queue) withdrawLocked(controls []request) []request {
	var fenced map[core.ExtentID]bool
	for i := range controls {
		if id := controls[i].fences; !id.IsZero() {
			if fenced == nil {
				fenced = make(map[core.ExtentID]bool)
			}
			fenced[id] = true
		}
	}
	if fenced == nil {
		return controls
	}
	into := controls
	q.mu.data = slices.DeleteFunc(q.mu.data, func(r request) bool {
		overtaken := r.done != nil && fenced[r.extent.id]
		if overtaken {
			into = append(into, r)
		}
		return overtaken
	})
	return into
}

// done gives the bytes of answered requests back.
func (q *queue) done(requests []request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range requests {
		r := &requests[i]
		q.mu.bytes -= r.bytes
		if r.extent != nil {
			r.extent.waiting -= r.bytes
		}
	}
	q.tellRoomLocked()
}

// AwaitRoom implements Log.
func (e *Engine) AwaitRoom(ctx context.Context) {
	for room := e.queue.crowded(); room != nil; room = e.queue.crowded() {
		select {
		case <-room:
		case <-e.stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

// crowded is nil while at most half of what may wait does, and after close; else it is closed when that may be so
// again.
func (q *queue) crowded() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed || q.mu.bytes <= q.limit/2 {
		return nil
	}
	if q.mu.room == nil {
		q.mu.room = make(chan struct{})
	}
	return q.mu.room
}

func (q *queue) tellRoomLocked() {
	if q.mu.room != nil && q.mu.bytes <= q.limit/2 {
		close(q.mu.room)
		q.mu.room = nil
	}
}
