// Package writer owns the append pipeline of one open extent: it numbers records and sends the same batch to all
// replicas without waiting. It answers publishers when every replica has the batch on disk, or when a seal has decided
// the end of the extent.
package writer

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/quorum"
	"github.com/columbamq/columba/wire"
)

// These bounds limit the batches in flight of a writer. Records that arrive above them gather into larger batches, and
// leave once they are more than a full batch.
const (
	gatherAt           = 8 // batches
	maxInFlightBatches = 64
	maxInFlightBytes   = 8 << 20
)

// Replica is the append stream to one store. Append must not block for long, and calls release when it no longer needs
// the batch.
type Replica interface {
	Append(head wire.BatchHeader, records []byte, committed core.Seq, release func()) error
	Commit(committed core.Seq)
	Close()
}

// Env has the functions of the host that a writer uses.
type Env struct {
	Log *slog.Logger
	// Seal asks the controller for the end of the extent. The writer has acknowledged everything up to End.Floor, and
	// acknowledges nothing more by itself. Seal returns the end seq, and the number of replicas that hold everything up
	// to it.
	Seal func(ctx context.Context, e core.Extent, end End) (l core.Seq, holders int, err error)
	// Again appends chunks, in order, to another extent of the queue. In a chain they come before chunks that arrived
	// later.
	Again func(chunks []Chunk)
	// Full is called once, when the extent has reached its size and needs a successor.
	Full func(w *Writer)
	// Tell calls w.Tell within a few milliseconds, together with others'.
	Tell func(w *Writer)
	// Ended is called once, when the writer accepts no more records; the extent will be sealed. store is the store that
	// ended it early, "" if none did.
	Ended func(w *Writer, store core.HostID, cause error)
	// Sealed is called once, last: every record is answered, and the extent is sealed unless the host stops. reason
	// says why the extent ended.
	Sealed func(w *Writer, reason string)
	// Go runs f on a goroutine that the host joins; its context ends when the host stops. False: it has stopped, nothing
	// runs.
	Go func(f func(ctx context.Context)) bool
	// Now is the host's clock.
	Now func() time.Time
	// Stamp returns the append time of a batch that is formed now, from the time of the host's clock.
	Stamp func(time.Time) time.Time
}

// End is the state of an extent that a writer reports when it asks for the seal.
type End struct {
	Floor  core.Seq
	Due    time.Time // of a timer extent: when the last of its records is due, or a later time; zero: it has none
	Reason string
	Owing  bool // a publisher waits for the answer
}

// Limits of a writer.
type Limits struct {
	PublishDeadline time.Duration // when no seal decided about a chunk by then, counted from its arrival, its outcome is unknown
	RollBytes       uint64        // the extent is replaced when it holds this much
	MaxRecords      core.Seq      // it never holds more, and is replaced a little before; 0: any number
}

// roll is the number of records at which the extent is replaced. The limit leaves room for records that arrive until
// its successor is open.
func (l Limits) roll() core.Seq { return l.MaxRecords - l.MaxRecords/8 }

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
// Invariants: inFlight holds exactly the batches with committed < seq ≤ last, in order. Records in pending have no seq
// yet. After the state is ended, only the seal acknowledges records.
type Writer struct {
	Extent core.Extent
	env    Env
	limits Limits

	formed   chan struct{} // capacity 1: late is set
	replicas []Replica     // set once, by Start, under mu
	mu       struct {
		sync.Mutex
		state         state
		sending       bool    // one goroutine is in send
		forming       bool    // it makes a batch, which is neither in pending nor in inFlight
		late          []Chunk // of a batch that was being made when the writer of a chain failed
		started       bool
		reason        string // of Close
		pending       []Chunk
		pendingBytes  int
		inFlight      []*batch
		inFlightBytes int
		last          core.Seq
		lastTime      int64
		checksum      uint32
		bytes         uint64
		taken         core.Seq // records that were taken, sent or not
		due           int64    // of what was taken, the latest; unix ms
		told          core.Seq // committed seq the replicas were told last
		telling       bool     // Env.Tell was asked to
		tracker       *quorum.Tracker
		slowest       []time.Duration // acknowledgement of each replica since the last look
	}
}

// New makes a writer that accepts chunks at once and sends them after Start.
func New(e core.Extent, limits Limits, env Env) *Writer {
	w := &Writer{Extent: e, env: env, limits: limits, formed: make(chan struct{}, 1)}
	w.mu.tracker = quorum.New(len(e.Replicas))
	w.mu.slowest = make([]time.Duration, len(e.Replicas))
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
	if w.limits.MaxRecords > 0 && w.mu.taken+core.Seq(c.Count) > w.limits.MaxRecords {
		w.mu.Unlock()
		w.Close("rolled")
		return false
	}
	w.mu.taken += core.Seq(c.Count)
	if c.Part != nil {
		w.mu.due = max(w.mu.due, c.Part.Due)
	}
	w.mu.pending = append(w.mu.pending, c)
	w.mu.pendingBytes += len(c.Records)
	w.mu.Unlock()
	w.send()
	return true
}

// Uses reports whether a store is one of the extent's.
func (w *Writer) Uses(store core.HostID) bool { return slices.Contains(w.Extent.Replicas, store) }

// Bytes is how much was sent, records only.
func (w *Writer) Bytes() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.bytes
}

// Committed is how far the extent is committed, and its size up to there, records only.
func (w *Writer) Committed() (core.Seq, uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.tracker.Committed(), w.mu.bytes - min(w.mu.bytes, uint64(max(w.mu.inFlightBytes, 0)))
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
	w.end(reason, "", nil, nil, nil)
}

// Fail ends the writer at once: a store refused, broke or was too slow ("": none did). Records without an answer wait
// for the seal.
func (w *Writer) Fail(store core.HostID, cause error) {
	w.mu.Lock()
	if w.mu.state == ended {
		w.mu.Unlock()
		return
	}
	w.mu.state = ended
	sent, unsent := w.mu.inFlight, w.mu.pending
	w.mu.inFlight, w.mu.pending, w.mu.pendingBytes = nil, nil, 0
	w.mu.Unlock()
	w.env.Log.Info("extent ends early", "extent", w.Extent.ID, "store", store, "err", cause)
	w.end("failure: "+string(core.CodeOf(cause)), store, cause, sent, unsent)
}

// end hands the extent over to its seal.
func (w *Writer) end(reason string, store core.HostID, cause error, sent []*batch, unsent []Chunk) {
	w.env.Ended(w, store, cause)
	w.env.Go(func(ctx context.Context) { w.settle(ctx, reason, sent, unsent) })
}
