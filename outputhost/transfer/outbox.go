package transfer

import (
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
)

// Outbox is what a group remembers of its transfers. The zero Outbox is that of a group that made none. It is safe for
// concurrent use, and calls nothing that locks.
type Outbox struct {
	mu   sync.Mutex
	used *lanes // nil until something leaves: most groups never have that
}

type lanes struct {
	of     [dispatch.Destinations]lane
	warned int64 // unix ns: when a failure was logged last
}

// lane is for one destination.
type lane struct {
	err        error // why the last message could not be transferred; nil: it could
	lookFailed int64 // unix ns, since when no look-up has succeeded; zero: the last one did
	lookedAt   int64 // unix ns, when the last look-up ended
	busy       bool  // messages are on their way to the publisher
	looking    bool  // a look-up is under way
	ready      bool  // the queue is there, as far as is known
}

// lockedLane locks the outbox, and makes the lane of a destination if need be. The caller unlocks.
func (o *Outbox) lockedLane(to dispatch.Destination) *lane {
	o.mu.Lock()
	if o.used == nil {
		o.used = new(lanes)
	}
	return &o.used.of[to]
}

// Next takes the messages that leave next for a destination, for Mover.Begin; none while earlier ones are on their way
// to its publisher. The caller owns rules.
func (o *Outbox) Next(rules *dispatch.Group, to dispatch.Destination) []dispatch.Transfer {
	o.mu.Lock()
	busy := o.used != nil && o.used.of[to].busy
	o.mu.Unlock()
	if busy {
		return nil
	}
	next := rules.TakeTransfers(to, atOnce, nil)
	if len(next) > 0 {
		o.lockedLane(to).busy = true
		o.mu.Unlock()
	}
	return next
}

// over says that the messages that Next took were handed to the publisher.
func (o *Outbox) over(to dispatch.Destination) {
	defer o.mu.Unlock()
	o.lockedLane(to).busy = false
}

// beginLook reports whether no look-up for a destination is under way; then one is, until endLook.
func (o *Outbox) beginLook(to dispatch.Destination) bool {
	l := o.lockedLane(to)
	defer o.mu.Unlock()
	began := !l.looking
	l.looking = true
	return began
}

func (o *Outbox) endLook(to dispatch.Destination) {
	defer o.mu.Unlock()
	o.lockedLane(to).looking = false
}

// Busy reports whether messages are on their way to a publisher, or looked for.
func (o *Outbox) Busy() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.used != nil && slices.ContainsFunc(o.used.of[:], func(l lane) bool { return l.busy || l.looking })
}

// Err is why the last message could not be transferred to a destination; nil: it could.
func (o *Outbox) Err(to dispatch.Destination) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.used == nil {
		return nil
	}
	return o.used.of[to].err
}

// note takes an outcome, and reports whether it is to be logged as a failure. A queue that was not found is made again.
func (o *Outbox) note(to dispatch.Destination, err error, now time.Time) (warn bool) {
	l := o.lockedLane(to)
	defer o.mu.Unlock()
	l.err = err
	l.ready = l.ready && core.CodeOf(err) != core.CodeNotFound
	return err != nil && o.warnLocked(now)
}

// warns reports whether a failure is to be logged.
func (o *Outbox) warns(now time.Time) bool {
	o.lockedLane(0)
	defer o.mu.Unlock()
	return o.warnLocked(now)
}

func (o *Outbox) warnLocked(now time.Time) bool {
	if now.UnixNano()-o.used.warned < int64(warning) {
		return false
	}
	o.used.warned = now.UnixNano()
	return true
}

// lookGap is the longest pause between look-ups for a message: it waits for dispatch.TransferDoubt after an early one,
// and may find another look-up under way then. After a longer one nobody waits since the failure before.
const lookGap = 2 * dispatch.TransferDoubt

// looked takes the outcome of a look-up, and reports whether a failed one is to be tried again.
func (o *Outbox) looked(to dispatch.Destination, err error, now time.Time) bool {
	l := o.lockedLane(to)
	defer o.mu.Unlock()
	pause := now.UnixNano() - l.lookedAt
	l.lookedAt = now.UnixNano()
	switch {
	case err == nil:
		l.lookFailed = 0
		return true
	case l.lookFailed == 0 || pause > int64(lookGap):
		l.lookFailed = now.UnixNano()
	}
	return now.UnixNano()-l.lookFailed < int64(patience)
}

func (o *Outbox) isReady(to dispatch.Destination) bool {
	defer o.mu.Unlock()
	return o.lockedLane(to).ready
}

func (o *Outbox) setReady(to dispatch.Destination) {
	defer o.mu.Unlock()
	o.lockedLane(to).ready = true
}
