package inputhost

import (
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

// queue routes a queue's chunks to its open extent, and waits for one when there is none.
//
//	no extent ──first chunk──▶ opening ──opened──▶ open ──size, age──▶ open + opening the next ──▶ open
//	    ▲──────── idle: sealed without replacement ────┘     failure ──▶ opening
type queue struct {
	h    *Host
	path string
	id   core.QueueID
	mu   struct {
		sync.Mutex
		record     metadata.QueueRecord
		publishers map[*publisher]struct{}
		checked    time.Time // when the record was read last
		current    *writer.Writer
		opened     time.Time // of current
		opening    bool
		replace    bool                        // current, though it is there: it is full, old or about to end
		notBefore  time.Time                   // the next try to replace current, after one that failed
		waiting    []writer.Chunk              // for an extent, in order
		closed     bool                        // draining: takes nothing more
		writers    map[*writer.Writer]struct{} // not sealed yet
	}
}

// publish routes one chunk. It does not wait for anything but room on the links.
func (q *queue) publish(c writer.Chunk) {
	var refused *writer.Writer // was closing when it was offered the chunk
	for {
		q.mu.Lock()
		w := q.mu.current
		if q.mu.closed || w == nil || w == refused || len(q.mu.waiting) > 0 {
			q.mu.replace = q.mu.replace || w != nil && w == refused
			q.mu.Unlock()
			q.again([]writer.Chunk{c})
			return
		}
		q.mu.Unlock()
		if w.Append(c) {
			if w.Full() {
				q.openNext(w)
			}
			return
		}
		refused = w // perhaps its successor is there by now
	}
}

// again takes chunks that have no extent, also what another extent of the queue could not hold. What may wait is bounded by the windows
// of the publishers.
func (q *queue) again(chunks []writer.Chunk) {
	q.mu.Lock()
	closed := q.mu.closed
	if !closed {
		q.mu.waiting = append(q.mu.waiting, chunks...)
		q.openLocked()
	}
	q.mu.Unlock()
	if closed {
		refuse(chunks, core.CodeDraining)
	}
}

func refuse(chunks []writer.Chunk, code core.Code) {
	for _, c := range chunks {
		c.From.Answer(c, writer.Refused(code))
	}
}

func (q *queue) openLocked() {
	if !q.mu.opening {
		q.mu.opening = true
		q.h.tasks.Go(q.open)
	}
}

// openNext opens a successor of w while w goes on.
func (q *queue) openNext(w *writer.Writer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.current == w && !q.mu.closed && !q.h.deps.now().Before(q.mu.notBefore) {
		q.mu.replace = true
		q.openLocked()
	}
}

// replacePause is the time between tries to replace an extent that can go on meanwhile.
const replacePause = time.Second

// open finds an extent for what waits: the current one, or, when there is none or it is to be replaced, a new one, trying until it works
// or nobody waits for it any more.
func (q *queue) open(ctx context.Context) {
	wait := 20 * time.Millisecond
	q.mu.Lock()
	old, replace := q.mu.current, q.mu.replace
	q.mu.Unlock()
	if old != nil && !replace {
		q.take(old)
		return
	}
	for {
		w, err := q.openExtent(ctx)
		if err == nil {
			q.take(w)
			if old != nil {
				old.Close("rolled")
			}
			return
		}
		q.h.log.Warn("cannot open an extent", "queue", q.path, "err", err)
		if q.expire(err) {
			return
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, time.Second)
		case <-ctx.Done():
			q.abandon()
			return
		}
	}
}

// expire answers the chunks that have waited too long, or all when err is final. It reports, and ends the opening, when none is
// left.
func (q *queue) expire(err error) bool {
	final := core.CodeOf(err).Class() == core.ClassFatal
	now := q.h.deps.now()
	late := now.Add(-q.h.cfg.PublishDeadline)
	q.mu.Lock()
	var failed, kept []writer.Chunk
	for _, c := range q.mu.waiting {
		if final || c.Arrived.Before(late) || c.From.Gone() {
			failed = append(failed, c)
		} else {
			kept = append(kept, c)
		}
	}
	q.mu.waiting = kept
	done := len(kept) == 0
	if done {
		q.mu.opening = false
		q.mu.notBefore = now.Add(replacePause)
	}
	q.mu.Unlock()
	refuse(failed, core.CodeOf(err))
	return done
}

// abandon refuses everything that waits: the host is stopping.
func (q *queue) abandon() {
	q.mu.Lock()
	left := q.mu.waiting
	q.mu.waiting = nil
	q.mu.opening = false
	q.mu.Unlock()
	refuse(left, core.CodeDraining)
}

// take makes w current and gives it what waits, in order, before anything newer. What nobody waits for is dropped: it was never reported,
// so it is never appended.
func (q *queue) take(w *writer.Writer) {
	for {
		q.mu.Lock()
		chunks := q.mu.waiting
		q.mu.waiting = nil
		if len(chunks) == 0 {
			q.settleLocked(w)
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		for i, c := range chunks {
			if c.From.Gone() {
				c.From.Answer(c, writer.Refused(core.CodeUnavailable))
				continue
			}
			if !w.Append(c) { // it has failed already, or is closing
				q.mu.Lock()
				q.mu.opening = false
				q.mu.replace = true
				q.mu.waiting = append(chunks[i:len(chunks):len(chunks)], q.mu.waiting...)
				q.openLocked()
				q.mu.Unlock()
				return
			}
		}
	}
}

// settleLocked ends an opening: w is current, unless it has ended meanwhile and told so before it was.
func (q *queue) settleLocked(w *writer.Writer) {
	q.mu.opening = false
	if q.mu.current == w {
		return
	}
	q.mu.current = nil
	q.mu.replace = false
	if w.Open() {
		q.mu.current = w
		q.mu.opened = q.h.deps.now()
	}
}

// ended is told by a writer that takes nothing more.
func (q *queue) ended(w *writer.Writer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.current == w {
		q.mu.current = nil
		q.mu.replace = false
	}
	if len(q.mu.waiting) > 0 {
		q.openLocked()
	}
}

// tick looks after deadlines, age and idleness.
func (q *queue) tick(now time.Time) {
	q.mu.Lock()
	current, opened := q.mu.current, q.mu.opened
	check := now.Sub(q.mu.checked) >= refreshEvery && len(q.mu.publishers) > 0
	if check {
		q.mu.checked = now
	}
	writers := make([]*writer.Writer, 0, len(q.mu.writers))
	for w := range q.mu.writers {
		writers = append(writers, w)
	}
	q.mu.Unlock()
	for _, w := range writers {
		w.CheckDeadline(now)
	}
	if check {
		q.h.tasks.Go(q.refresh)
	}
	if current == nil {
		q.h.forget(q)
		return
	}
	if since, idle := current.IdleSince(); idle && now.Sub(since) >= q.h.cfg.IdleAfter {
		current.Close("idle")
	} else if now.Sub(opened) >= q.h.cfg.RollAge {
		q.openNext(current)
	}
}

// close seals what is open and waits for it.
func (q *queue) close(ctx context.Context) {
	q.mu.Lock()
	current := q.mu.current
	waiting := q.mu.waiting
	q.mu.waiting = nil
	q.mu.closed = true
	q.mu.Unlock()
	refuse(waiting, core.CodeDraining)
	if current != nil {
		current.Close("drain")
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		q.mu.Lock()
		left := len(q.mu.writers)
		q.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// leave takes a publisher out.
func (q *queue) leave(p *publisher) {
	q.mu.Lock()
	delete(q.mu.publishers, p)
	q.mu.Unlock()
}

// refreshEvery is how soon a changed status reaches publishers that are connected.
const refreshEvery = 2 * time.Second

// refresh reads the queue's record again and ends its publishers when it takes no messages any more.
func (q *queue) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	record, _, err := metadata.Read[metadata.QueueRecord](ctx, q.h.deps.Meta, metadata.Queues, metadata.QueueKey(q.id), metadata.One)
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
		record.Spec.Status = core.StatusDeleted
	case err != nil:
		q.h.log.Info("cannot read a queue's settings", "queue", q.path, "err", err)
		return
	}
	q.mu.Lock()
	q.mu.record.Spec = record.Spec
	var end []*publisher
	if !record.Spec.Status.CanPublish() {
		for p := range q.mu.publishers {
			end = append(end, p)
		}
	}
	current := q.mu.current
	q.mu.Unlock()
	for _, p := range end {
		p.fail(statusError(q.path, record.Spec.Status))
	}
	if len(end) > 0 && current != nil {
		current.Close("status")
	}
}

func statusError(path string, s core.Status) error {
	if s == core.StatusDeleted {
		return core.Errorf(core.CodeNotFound, "queue %s was deleted", path)
	}
	return core.Errorf(core.CodeDisabled, "queue %s is %s: it takes no messages", path, s)
}

// idleLocked: nothing refers to the queue.
func (q *queue) idleLocked() bool {
	return len(q.mu.publishers) == 0 && q.mu.current == nil && !q.mu.opening && len(q.mu.waiting) == 0 && len(q.mu.writers) == 0
}

// maxPayload of a message of this queue; built-in queues take what their users' queue took, and the history on top.
func (q *queue) maxPayload() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.mu.record.Spec.MaxMessage
	if !q.mu.record.Owner.IsZero() {
		n = min(n+wire.InternalHeadroom, wire.MaxPayload)
	}
	return n
}
