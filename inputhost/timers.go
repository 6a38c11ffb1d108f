package inputhost

import (
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
)

// The timed records of a queue go, by their horizon, to a queue beside it: the same router, with one extent at most, no
// publishers of its own and no order, also in a CP queue. It is there while it has an extent or chunks.

// queueKey names a queue on this host: with a horizon it is that of the timers of another.
type queueKey struct {
	id      core.QueueID
	horizon core.Horizon // "": what goes to log extents
}

// timers finds or makes the queue of the timers of a horizon. The caller calls left once it has published to it.
func (q *queue) timers(horizon core.Horizon) *queue {
	h := q.h
	h.mu.Lock()
	defer h.mu.Unlock()
	q.mu.Lock()
	record, at := q.mu.record, q.mu.at
	q.mu.Unlock()
	key := queueKey{q.id, horizon}
	t := h.mu.queues[key]
	if t == nil {
		t = newQueue(h, record, at, horizon)
		t.mu.closed = h.mu.draining
		h.mu.queues[key] = t
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.entering++
	if at != t.mu.at && !at.Before(t.mu.at) {
		t.mu.record, t.mu.at, t.mu.refuses = record, at, record.Spec.Status.PublishError(t.path)
	}
	return t
}

// left is the end of a visit that timers began: until then the queue is not forgotten.
func (q *queue) left() {
	q.mu.Lock()
	q.mu.entering--
	q.mu.Unlock()
}

// publishTimers routes a chunk of one horizon. It waits for nothing.
func (q *queue) publishTimers(horizon int, c writer.Chunk) {
	t := q.timers(core.HorizonAt(horizon))
	t.publish(nil, c)
	t.left()
}

// beside are the queues of this one's timers.
func (q *queue) beside() (out []*queue) {
	if q.horizon != "" {
		return nil
	}
	q.h.mu.Lock()
	defer q.h.mu.Unlock()
	for i := range core.Horizons {
		if t := q.h.mu.queues[queueKey{q.id, core.HorizonAt(i)}]; t != nil {
			out = append(out, t)
		}
	}
	return out
}

// sixtieth is the part of its horizon for which a timer extent stays open at least.
const sixtieth = 60

// openFor is for how long an extent stays open that would otherwise for d. One of timers is there until they are due:
// those of a far horizon have to be few, however rarely a message comes for them.
func (q *queue) openFor(d time.Duration) time.Duration {
	if q.horizon == "" {
		return d
	}
	return max(d, q.horizon.Reach()/sixtieth)
}

// kind of the queue's extents.
func (q *queue) kind() core.ExtentKind {
	if q.horizon != "" {
		return core.KindTimer
	}
	return core.KindLog
}

// homeLocked is the open extent for chunks of a publisher, nil when there is none. Timers have one for all.
func (q *queue) homeLocked(from writer.Publisher) *slot {
	if q.horizon != "" {
		return q.mu.open.home(nil)
	}
	return q.mu.open.home(from.(*publisher))
}
