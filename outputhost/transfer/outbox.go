package transfer

import (
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
)

// Outbox is what a group remembers of its transfers. The zero Outbox is that of a group that made none. It is safe for
// concurrent use, and calls nothing that locks.
type Outbox struct {
	mu     sync.Mutex
	lanes  [dispatch.Destinations]lane
	warned int64 // unix ns: when a failure was logged last
}

// lane is for one destination.
type lane struct {
	err        error // why the last message could not be transferred; nil: it could
	lookFailed int64 // unix ns, since when no look-up has succeeded; zero: the last one did
	busy       bool  // messages are on their way to the publisher
	ready      bool  // the queue is there, as far as is known
}

// Next takes the messages that leave next for a destination, for Mover.Begin; none while earlier ones are on their way
// to its publisher. The caller owns rules.
func (o *Outbox) Next(rules *dispatch.Group, to dispatch.Destination) []dispatch.Transfer {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lanes[to].busy {
		return nil
	}
	next := rules.TakeTransfers(to, atOnce, nil)
	o.lanes[to].busy = len(next) > 0
	return next
}

// over says that the messages that Next took were handed to the publisher.
func (o *Outbox) over(to dispatch.Destination) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lanes[to].busy = false
}

// Busy reports whether messages are on their way to a publisher.
func (o *Outbox) Busy() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.lanes {
		if o.lanes[i].busy {
			return true
		}
	}
	return false
}

// Err is why the last message could not be transferred to a destination; nil: it could.
func (o *Outbox) Err(to dispatch.Destination) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lanes[to].err
}

// note takes an outcome, and reports whether it is to be logged as a failure. A queue that was not found is made again.
func (o *Outbox) note(to dispatch.Destination, err error, now time.Time) (warn bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := &o.lanes[to]
	l.err = err
	l.ready = l.ready && core.CodeOf(err) != core.CodeNotFound
	return err != nil && o.warnLocked(now)
}

// warns reports whether a failure is to be logged.
func (o *Outbox) warns(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.warnLocked(now)
}

func (o *Outbox) warnLocked(now time.Time) bool {
	if now.UnixNano()-o.warned < int64(warning) {
		return false
	}
	o.warned = now.UnixNano()
	return true
}

// looked takes the outcome of a look-up, and reports whether a failed one is to be tried again.
func (o *Outbox) looked(to dispatch.Destination, err error, patience time.Duration, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := &o.lanes[to]
	switch {
	case err == nil:
		l.lookFailed = 0
		return true
	case l.lookFailed == 0:
		l.lookFailed = now.UnixNano()
	}
	return now.UnixNano()-l.lookFailed < int64(patience)
}

func (o *Outbox) isReady(to dispatch.Destination) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lanes[to].ready
}

func (o *Outbox) setReady(to dispatch.Destination) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lanes[to].ready = true
}
