package extentlog

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
)

// commitLoop is the log's one writer: it takes everything that waits, makes it durable with one sync, publishes, answers in
// order and wakes followers. What arrives meanwhile gathers for the next round.
func (e *Engine) commitLoop() {
	var requests []request
	for {
		requests = e.queue.take(requests)
		if len(requests) == 0 {
			return
		}
		e.commit(requests)
		clear(requests)
		if cap(requests) > 4096 {
			requests = nil
		}
	}
}

func (e *Engine) commit(requests []request) {
	bytes := 0
	for _, r := range requests {
		bytes += r.bytes
	}
	g := &group{batch: e.db.NewBatch(pebble.WithInitialSizeBytes(bytes+256*len(requests)), pebble.WithMaxRetainedSizeBytes(maxGroupBytes))}
	errs := make([]error, len(requests))
	for i, r := range requests {
		if errs[i] = e.refusing(); errs[i] == nil {
			errs[i] = r.stage(g)
		}
	}
	err := e.apply(g)
	for i, r := range requests {
		if errs[i] == nil {
			errs[i] = err
		}
		r.answer(errs[i])
	}
	e.queue.done(bytes)
	for _, x := range g.touched {
		x.wake()
	}
}

// apply makes the group durable and visible. On an error nothing of it is known to be stored: the log refuses all from then on.
func (e *Engine) apply(g *group) error {
	defer g.batch.Close()
	for _, s := range g.appends {
		s.extent.next.committed = max(s.extent.next.committed, s.extent.committed())
	}
	for _, x := range g.touched {
		if x.next.Extent.ID.IsZero() {
			continue // removed
		}
		if err := g.batch.Set(extentKey(prefixPosition, x.id), x.next.position.encode(), nil); err != nil {
			return e.fail(err)
		}
	}
	if g.batch.Empty() {
		return nil
	}
	if err := e.db.Apply(g.batch, pebble.Sync); err != nil {
		return e.fail(err)
	}
	for _, s := range g.appends {
		if s.extent.followed() {
			s.extent.tail.add(s.batch, e.tails)
		}
	}
	for _, x := range g.touched {
		x.publish()
	}
	return nil
}

// fail fences the store against itself: after a failed write nobody can say what is on the disk.
func (e *Engine) fail(err error) error {
	failed := core.Errorf(core.CodeUnavailable, "the store's log failed to write and takes no more: look at the disk and restart it: %w", err)
	if e.broken.CompareAndSwap(nil, failed) {
		e.log.Error("extent log failed", "err", err)
	}
	return failed
}

func (e *Engine) refusing() error {
	if err := e.broken.Load(); err != nil {
		return err
	}
	return nil
}
