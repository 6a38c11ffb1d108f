// Package writer owns the append pipeline of one open extent: it numbers records, sends the same batch to all replicas
// without waiting, and answers publishers once every replica has it on disk – or once a seal has decided.
package writer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/quorum"
	"github.com/columbamq/columba/wire"
)

// Bounds of what a writer has under way. What arrives above them gathers into larger batches.
const (
	maxInFlightBatches = 8
	maxInFlightBytes   = 8 << 20
)

// Replica is the append stream to one store. Append must not block for long and calls release once it no longer needs the batch.
type Replica interface {
	Append(head wire.BatchHeader, records []byte, committed core.Seq, release func()) error
	Commit(committed core.Seq)
	Close()
}

// Env is what a writer needs from its host.
type Env struct {
	Log *slog.Logger
	// Seal asks the controller for the end of the extent; the writer has acknowledged everything up to floor and will acknowledge
	// nothing more by itself. It answers L and how many replicas hold everything up to it.
	Seal func(ctx context.Context, e core.Extent, floor core.Seq, reason string) (l core.Seq, holders int, err error)
	// Again appends chunks, in order, to another extent of the queue.
	Again func(chunks []Chunk)
	// Ended is called once, when the writer takes nothing more; the extent will be sealed.
	Ended func(w *Writer)
	// Sealed is called once, last: everything is answered.
	Sealed func(w *Writer)
	// Go runs f on a goroutine that the host joins; its context ends when the host stops. False: it has stopped, nothing runs.
	Go func(f func(ctx context.Context)) bool
	// Now is the host's clock.
	Now func() time.Time
}

// Limits of a writer.
type Limits struct {
	AppendDeadline  time.Duration // a replica slower than this ends the extent
	PublishDeadline time.Duration // when no seal answer came by then, the outcome is unknown
	RollBytes       uint64        // the extent is replaced when it holds this much
}

// state of a writer:
//
//	open ──Close──▶ closing ──nothing in flight──▶ ended (sealed at its last seq)
//	  └──────fail──────┴──────────▶ ended (sealed where the stores decide; the rest is appended again)
type state uint8

const (
	open state = iota
	closing
	ended
)

// Writer is the one writer of an extent. Safe for concurrent use.
//
// Invariants: inFlight holds exactly the batches with committed < seq ≤ last, in order; what is in pending has no seq yet.
type Writer struct {
	Extent core.Extent
	env    Env
	limits Limits

	replicas []Replica // set once, by Start, under mu
	mu       struct {
		sync.Mutex
		state         state
		sending       bool // one goroutine is in send
		started       bool
		reason        string // of Close
		pending       []Chunk
		inFlight      []flight
		inFlightBytes int
		last          core.Seq
		lastTime      int64
		checksum      uint32
		bytes         uint64
		active        time.Time
		told          core.Seq // committed seq the replicas were told last
		tracker       *quorum.Tracker
	}
}

// flight is a batch on its way.
type flight struct {
	base   core.Seq
	last   core.Seq
	bytes  int
	sent   time.Time
	chunks []Chunk
}

// New makes a writer that takes chunks at once and sends them from Start on.
func New(e core.Extent, limits Limits, env Env) *Writer {
	w := &Writer{Extent: e, env: env, limits: limits}
	w.mu.tracker = quorum.New(len(e.Replicas))
	w.mu.active = env.Now()
	return w
}

// Start gives the writer its opened replicas, in the order of the extent's replica set.
func (w *Writer) Start(replicas []Replica) {
	w.mu.Lock()
	w.replicas = replicas
	w.mu.started = true
	ended := w.mu.state == ended
	w.mu.Unlock()
	if ended { // a link broke before the last replica was open, and settle knew of none
		closeAll(replicas)
		return
	}
	w.send()
	w.finish()
}

func closeAll(replicas []Replica) {
	for _, r := range replicas {
		r.Close()
	}
}

// Open reports whether the writer takes chunks. Once it does not, it never will.
func (w *Writer) Open() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.state == open
}

// Append takes a chunk, or says false: the writer takes nothing more.
func (w *Writer) Append(c Chunk) bool {
	w.mu.Lock()
	if w.mu.state != open {
		w.mu.Unlock()
		return false
	}
	w.mu.pending = append(w.mu.pending, c)
	w.mu.Unlock()
	w.send()
	return true
}

// Full reports that the extent has reached its size and wants a successor.
func (w *Writer) Full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.bytes >= w.limits.RollBytes
}

// IdleSince is when the last chunk was sent or answered; ok is false while anything is under way.
func (w *Writer) IdleSince() (t time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.active, w.mu.state == open && len(w.mu.pending) == 0 && len(w.mu.inFlight) == 0
}

// Close lets what was taken finish, then seals the extent. It does not wait.
func (w *Writer) Close(reason string) {
	w.mu.Lock()
	if w.mu.state != open {
		w.mu.Unlock()
		return
	}
	w.mu.state = closing
	w.mu.reason = reason
	w.mu.Unlock()
	w.finish()
}

// finish ends a closing writer once nothing is under way.
func (w *Writer) finish() {
	w.mu.Lock()
	if w.mu.state != closing || len(w.mu.pending) > 0 || len(w.mu.inFlight) > 0 || !w.mu.started {
		w.mu.Unlock()
		return
	}
	w.mu.state = ended
	reason := w.mu.reason
	w.mu.Unlock()
	w.end(reason, nil)
}

// Fail ends the writer at once: a replica refused, broke or was too slow. What is under way waits for the seal.
func (w *Writer) Fail(cause error) {
	w.mu.Lock()
	if w.mu.state == ended {
		w.mu.Unlock()
		return
	}
	w.mu.state = ended
	left := w.mu.inFlight
	if len(w.mu.pending) > 0 {
		left = append(left, flight{chunks: w.mu.pending})
	}
	w.mu.inFlight, w.mu.pending = nil, nil
	w.mu.Unlock()
	w.env.Log.Warn("extent ends early", "extent", w.Extent.ID, "err", cause)
	w.end("failure: "+string(core.CodeOf(cause)), left)
}

// end hands the extent over to its seal. left is what has no answer yet; a flight without seqs was never sent.
func (w *Writer) end(reason string, left []flight) {
	w.env.Ended(w)
	w.env.Go(func(ctx context.Context) { w.settle(ctx, reason, left) })
}

// CheckDeadline fails the writer when a replica has not answered the oldest batch in time.
func (w *Writer) CheckDeadline(now time.Time) {
	w.mu.Lock()
	late := w.mu.state != ended && len(w.mu.inFlight) > 0 && now.Sub(w.mu.inFlight[0].sent) > w.limits.AppendDeadline
	w.mu.Unlock()
	if late {
		w.Fail(core.Errorf(core.CodeDeadline, "a replica did not acknowledge within %s", w.limits.AppendDeadline))
	}
}
