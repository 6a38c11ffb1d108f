package inputhost

import (
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/tenant"
	"github.com/columbamq/columba/inputhost/writer"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

// queue routes a queue's chunks to its open extents, and keeps them while there is none.
//
//	idle ──first chunk──▶ opening ──opened──▶ publishing, with as many extents as the demand wants ──nothing for a while──▶ idle
//	                         ▲───────────────all extents failed──┘
//
// An extent that fails, is full or is old leaves the set; another takes its streams at once.
type queue struct {
	h       *Host
	path    string
	id      core.QueueID
	horizon core.Horizon // of the timers that it routes; "": it routes what goes to log extents
	ordered bool         // CP
	gate    *tenant.Gate // nil: of timers, which go through that of their queue
	mu      struct {
		sync.Mutex
		record     metadata.QueueRecord
		publishers map[*publisher]struct{}
		at         metadata.Reading // of the record
		refuses    error            // why its status takes no messages; nil: it takes them
		open       openSet
		demand     demand
		began      time.Time // of publishing, after idleness
		active     time.Time // the last chunk from a publisher
		looked     time.Time // at the load
		opening    bool
		outage     outage
		probe      bool                         // a try is wanted that nobody waits for: whether the outage is over
		notBefore  time.Time                    // the next try to open what nobody waits for, after one that failed
		entering   int                          // calls that are about to publish timers
		waiting    []writer.Chunk               // for an extent, in order
		feeding    bool                         // somebody gives them to the open extents
		closed     bool                         // draining: takes nothing more
		writers    map[*writer.Writer]time.Time // not sealed yet, and when they were begun
		sealed     []sealedFill                 // lately
		pace       pace
		chain      chain // of a CP queue
	}
}

func newQueue(h *Host, record metadata.QueueRecord, at metadata.Reading, horizon core.Horizon) *queue {
	q := &queue{h: h, path: record.Spec.Path, id: record.ID, horizon: horizon, ordered: record.Spec.Consistency == core.CP && horizon == ""}
	q.mu.record, q.mu.at, q.mu.refuses = record, at, record.Spec.Status.PublishError(record.Spec.Path)
	q.mu.publishers = make(map[*publisher]struct{})
	q.mu.writers = make(map[*writer.Writer]time.Time)
	q.mu.chain = newChain()
	if horizon != "" {
		return q
	}
	fills := q.fills
	if !record.Owner.IsZero() {
		fills = nil // dead letters are no backlog: nothing could be done about them by waiting
	}
	q.gate = h.tenants.Open(q.path, q.id, record.Spec.MaxBacklog, fills)
	return q
}

// sealedFill is how far a sealed extent went.
type sealedFill struct {
	tenant.Fill
	at time.Time // when it was sealed
}

// fills are how far the extents are that are not sealed, or were sealed so lately that the controller may not have
// measured them since; those of timers too.
func (q *queue) fills() []tenant.Fill {
	var out []tenant.Fill
	for _, q := range append(q.beside(), q) {
		out = q.appendFills(out)
	}
	return out
}

func (q *queue) appendFills(out []tenant.Fill) []tenant.Fill {
	now := q.h.deps.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := range q.mu.writers {
		out = append(out, fillOf(w))
	}
	q.forgetSealedLocked(now)
	for _, f := range q.mu.sealed {
		out = append(out, f.Fill)
	}
	return out
}

func (q *queue) forgetSealedLocked(now time.Time) {
	q.mu.sealed = slices.DeleteFunc(q.mu.sealed, func(f sealedFill) bool { return now.Sub(f.at).Abs() >= tenant.TellSealed })
}

func fillOf(w *writer.Writer) tenant.Fill {
	last, bytes := w.Committed()
	return tenant.Fill{Extent: w.Extent.ID, Last: last, Bytes: bytes}
}

// env is what this queue's writers need.
func (q *queue) env() writer.Env {
	again, log := q.again, q.h.log.With("queue", q.path)
	if q.ordered {
		again = q.front
	}
	if q.horizon != "" {
		log = log.With("horizon", q.horizon)
	}
	return writer.Env{
		Log:    log,
		Seal:   q.seal,
		Again:  again,
		Tell:   q.h.teller.add,
		Full:   q.full,
		Ended:  q.ended,
		Sealed: q.sealed,
		Go:     q.h.tasks.Go,
		Now:    q.h.deps.now,
		Stamp:  q.h.clock.stamp,
	}
}

// publish routes one chunk of p, nil for timers. It waits for nothing.
func (q *queue) publish(p *publisher, c writer.Chunk) {
	for {
		q.mu.Lock()
		if why := q.mu.refuses; why != nil {
			q.mu.Unlock()
			refuseFor([]writer.Chunk{c}, why)
			return
		}
		q.noteLocked(c.Arrived)
		var home *slot
		if !q.ordered && !q.mu.closed && !q.mu.feeding && len(q.mu.waiting) == 0 {
			home = q.mu.open.home(p)
		}
		q.mu.Unlock()
		if home == nil {
			q.again([]writer.Chunk{c})
			return
		}
		if home.w.Append(c) {
			return
		}
		q.mu.Lock()
		q.mu.open.drop(home.w)
		q.mu.Unlock()
	}
}

// noteLocked notes that a publisher publishes.
func (q *queue) noteLocked(now time.Time) {
	if now.Sub(q.mu.active) > publishingFor {
		q.mu.began = now
	}
	q.mu.active = now
}

const (
	// publishingFor is how long a queue counts as publishing after a chunk.
	publishingFor = 5 * time.Second
	// settledAfter is for how long a queue has publishing to go on before it gets more than the extent it needs.
	settledAfter = time.Second
)

// publishingLocked reports whether the queue is worth extents beyond the first.
func (q *queue) publishingLocked(now time.Time) bool {
	return now.Sub(q.mu.active) <= publishingFor && now.Sub(q.mu.began) >= settledAfter
}

// again queues chunks that have no extent, also those that another extent of the queue could not hold. The windows of
// the publishers bound the waiting bytes.
func (q *queue) again(chunks []writer.Chunk) {
	now := q.h.deps.now()
	q.mu.Lock()
	closed, why := q.mu.closed, q.probeLocked(now)
	if !closed && why == nil {
		q.mu.waiting = append(q.mu.waiting, chunks...)
	}
	q.mu.Unlock()
	switch {
	case closed:
		refuse(chunks, core.CodeDraining)
	case why != nil:
		refuseFor(chunks, why)
	default:
		q.feed()
	}
}

// feed passes the waiting chunks to the open extents, in order, before newer ones; without an open extent it has one
// opened. One goroutine at a time runs it. A chunk whose publisher has gone is dropped: it was never reported, so it is
// never appended. When the queue closes meanwhile, chunks that come back from an extent are refused.
func (q *queue) feed() {
	q.mu.Lock()
	if q.mu.feeding {
		q.mu.Unlock()
		return
	}
	q.mu.feeding = true
	for len(q.mu.waiting) > 0 && !q.mu.closed {
		c := q.mu.waiting[0]
		home := q.homeLocked(c.From)
		if home == nil {
			q.openLocked()
			break
		}
		q.mu.waiting[0] = writer.Chunk{}
		q.mu.waiting = q.mu.waiting[1:]
		q.mu.Unlock()
		taken := true
		if c.From.Gone() {
			c.From.Answer(c, writer.Refused(core.CodeUnavailable))
		} else {
			taken = home.w.Append(c)
		}
		q.mu.Lock()
		if !taken { // it has failed already, or is closing
			q.mu.open.drop(home.w)
			q.mu.waiting = append([]writer.Chunk{c}, q.mu.waiting...)
		}
		q.restLocked()
	}
	var late []writer.Chunk
	if q.mu.closed {
		late, q.mu.waiting = q.mu.waiting, nil
	}
	if len(q.mu.waiting) == 0 {
		q.mu.waiting = nil
	}
	q.mu.feeding = false
	q.mu.Unlock()
	refuse(late, core.CodeDraining)
}

func refuse(chunks []writer.Chunk, code core.Code) {
	for _, c := range chunks {
		c.From.Answer(c, writer.Refused(code))
	}
}

// full is told by a writer whose extent has reached its size.
func (q *queue) full(w *writer.Writer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.open.markReplace(w)
	if q.ordered {
		q.rollLocked(q.h.deps.now(), w, "rolled")
		return
	}
	if !q.h.deps.now().Before(q.mu.notBefore) {
		q.openLocked()
	}
}

// list appends the writers that are not sealed yet.
func (q *queue) list(dst []*writer.Writer) []*writer.Writer {
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := range q.mu.writers {
		dst = append(dst, w)
	}
	return dst
}

// streams are the queue's publishers.
func (q *queue) streams() []*publisher {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make([]*publisher, 0, len(q.mu.publishers))
	for p := range q.mu.publishers {
		out = append(out, p)
	}
	return out
}

// beginClose seals what is open, without replacement.
func (q *queue) beginClose() {
	q.mu.Lock()
	writers := q.takeOutLocked()
	waiting := q.mu.waiting
	q.mu.waiting = nil
	q.mu.closed = true
	q.mu.chain.refuseLocked(core.Errorf(core.CodeDraining, "input host is draining"))
	q.mu.Unlock()
	refuse(waiting, core.CodeDraining)
	for _, w := range writers {
		w.Close("drain")
	}
}

// unsealed is how many extents have no end yet.
func (q *queue) unsealed() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.writers)
}

// leave takes a publisher out.
func (q *queue) leave(p *publisher) {
	q.mu.Lock()
	delete(q.mu.publishers, p)
	q.mu.open.leave(p)
	q.mu.chain.leaveLocked(p)
	q.mu.Unlock()
}

// idleLocked: nothing refers to the queue, and it has no outage that those who come back are to find.
func (q *queue) idleLocked(now time.Time) bool {
	return !q.mu.outage.recent(now) && len(q.mu.publishers)+q.mu.entering == 0 && len(q.mu.open.slots) == 0 && !q.mu.opening && len(q.mu.waiting) == 0 && len(q.mu.writers) == 0
}

// maxPayload of a message of this queue; built-in queues take what their users' queue took, and the history on top.
func (q *queue) maxPayload() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.mu.record.Owner.IsZero() { // what comes here was published before, under the limit of then
		return wire.MaxPayload
	}
	return q.mu.record.Spec.MaxMessage
}
