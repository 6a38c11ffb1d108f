package inputhost

import (
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
)

const (
	tickEvery = 250 * time.Millisecond
	loadEvery = time.Second
)

// ticker looks after all queues of a host, with room that it uses again.
type ticker struct {
	h       *Host
	queues  []*queue
	writers []*writer.Writer
	rates   []float64
	lags    map[core.HostID]lag
}

// tick looks at the stores, the load, ages and idleness.
func (t *ticker) tick(now time.Time) {
	t.queues = t.h.appendQueues(t.queues[:0])
	clear(t.lags)
	for _, q := range t.queues {
		t.writers = q.list(t.writers[:0])
		for _, w := range t.writers {
			w.Lags(now, t.observe)
		}
	}
	clear(t.writers)
	t.h.links.listen(t.lags)
	if store, why := t.h.stores.look(now, t.lags); store != "" {
		t.h.evict(store, why)
	}
	limits := t.h.demand()
	for _, q := range t.queues {
		t.rates = q.tick(now, limits, t.rates[:0])
	}
	clear(t.queues)
}

// observe takes what a writer says of a store.
func (t *ticker) observe(store core.HostID, l writer.Lag) {
	was := t.lags[store]
	t.lags[store] = lag{
		oldest: max(was.oldest, l.Oldest), slowest: max(was.slowest, l.Slowest),
		behind: max(was.behind, l.Behind), overtaken: max(was.overtaken, l.Overtaken),
	}
}

// tick looks after load, age and idleness.
func (q *queue) tick(now time.Time, limits demandLimits, rates []float64) []float64 {
	q.mu.Lock()
	if late, why := q.overdueLocked(now); len(late) > 0 {
		q.mu.Unlock()
		refuseFor(late, why)
		q.mu.Lock()
	}
	if len(q.mu.open.slots) == 0 && !q.mu.opening {
		idle := q.idleLocked(now)
		q.mu.Unlock()
		if idle {
			q.h.forget(q)
		}
		return rates
	}
	if q.horizon != "" {
		limits.least, limits.most = 1, 1
	}
	ends, reason := q.tendLocked(now, limits, &rates)
	q.mu.Unlock()
	for _, w := range ends {
		w.Close(reason)
	}
	return rates
}

// overdueLocked takes out what has waited too long for an extent: for a call that is not answered, for the end of an
// outage, or, in a chain, for the end of an older extent, while nobody opens the next one.
func (q *queue) overdueLocked(now time.Time) (late []writer.Chunk, why error) {
	if len(q.mu.waiting) == 0 || len(q.mu.open.slots) > 0 {
		return nil, nil
	}
	lasts := q.mu.outage.lasts(now)
	deadline := now.Add(-q.h.unsentMost())
	over := func(c *writer.Chunk) bool { return lasts || c.Arrived.Before(deadline) || c.From.Gone() }
	if !over(&q.mu.waiting[0]) {
		return nil, nil
	}
	switch {
	case q.mu.outage.recent(now):
		why = q.mu.outage.why
	case q.mu.pace.wait(now) > 0:
		why = core.Errorf(core.CodeUnavailable, "queue %s has no open extent: its last ones failed one after another, and the next is tried later; look at the links to the stores", q.path)
	case q.mu.opening:
		why = core.Errorf(core.CodeUnavailable, "queue %s has no open extent, and none could be opened within %s", q.path, q.h.unsentMost())
	default:
		why = core.Errorf(core.CodeUnavailable, "queue %s: the end of its last extent could not be decided within %s", q.path, q.h.unsentMost())
	}
	return q.takeLocked(over), why
}

// tendLocked takes out of the set what is to be closed, and has opened what is missing.
func (q *queue) tendLocked(now time.Time, limits demandLimits, rates *[]float64) (ends []*writer.Writer, reason string) {
	if q.idlesLocked(now) {
		switch {
		case !q.ordered && q.h.settings.failing.Load():
			return nil, "" // without the metadata nobody could open another one
		case !q.ordered:
			return q.takeOutLocked(), "idle"
		}
		for _, s := range q.mu.open.slots {
			q.rollLocked(now, s.w, "idle")
		}
		return nil, ""
	}
	for _, s := range q.mu.open.slots {
		if now.Sub(s.opened) >= q.openFor(q.h.cfg.RollAge) && s.w.Bytes() > 0 {
			s.replace = true
		}
		if len(s.w.Extent.Replicas) < q.mu.record.Spec.Replicas && q.h.stores.spare(now, s.opened, s.w.Extent) {
			s.replace = true
		}
	}
	if q.ordered {
		if s := q.mu.open.replaced(); s != nil {
			q.rollLocked(now, s.w, "rolled")
		}
		return nil, ""
	}
	if now.Sub(q.mu.looked) >= loadEvery {
		q.mu.looked = now
		*rates = q.mu.open.rates(now, *rates)
		if q.mu.demand.look(now, limits, *rates, len(q.mu.publishers)) {
			if s := q.mu.open.least(); s != nil {
				q.mu.open.drop(s.w)
				ends, reason = append(ends, s.w), "calm"
			}
		}
	}
	if needed, _ := q.needLocked(now); needed && !now.Before(q.mu.notBefore) {
		q.openLocked()
	}
	return ends, reason
}

// takeOutLocked empties the set.
func (q *queue) takeOutLocked() (writers []*writer.Writer) {
	for _, s := range q.mu.open.slots {
		s.gone = true
		writers = append(writers, s.w)
	}
	q.mu.open.slots = nil
	q.mu.demand = demand{}
	return writers
}
