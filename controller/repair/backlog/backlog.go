// Package backlog owns the queue of extents whose copies have to be checked: their order, pauses and pace.
package backlog

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
)

// Pauses after looks that failed: from the first, doubled up to the other.
const (
	minRetry = 100 * time.Millisecond
	maxRetry = time.Minute
	// awayRetry is the pause after a look that only a store that comes can change. Sweep ends it when one comes.
	awayRetry = time.Hour
)

// retry says when an extent whose repair failed is looked at again.
type retry struct {
	after time.Time
	pause time.Duration
}

// look is a look at an extent that is under way.
type look struct {
	urgent bool
	stop   context.CancelCauseFunc
	again  bool // a store came or went since it began: what it found may be old
}

// Backlog is the extents whose copies are to be looked at. Safe for concurrent use.
type Backlog struct {
	wake chan struct{}
	mu   struct {
		sync.Mutex
		sweep  bool                   // look at all extents
		queued map[core.ExtentID]bool // → in urgent
		urgent []core.ExtentID        // below the minimum, or somebody waits
		others []core.ExtentID        // those moved to urgent since stay, and are passed over
		busy   map[core.ExtentID]*look
		failed map[core.ExtentID]retry
		lost   map[core.ExtentID]struct{} // no store has all of them any more
	}
}

// New backlog, of nothing.
func New() *Backlog {
	b := &Backlog{wake: make(chan struct{}, 1)}
	b.mu.queued = make(map[core.ExtentID]bool)
	b.mu.busy = make(map[core.ExtentID]*look)
	b.mu.failed = make(map[core.ExtentID]retry)
	b.mu.lost = make(map[core.ExtentID]struct{})
	return b
}

// Woken is when somebody wants a look.
func (b *Backlog) Woken() <-chan struct{} { return b.wake }

// Wake has who waits for Woken look now.
func (b *Backlog) Wake() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Want asks for a look at one extent soon.
func (b *Backlog) Want(id core.ExtentID) {
	b.Add(id, true)
	b.Wake()
}

// Sweep asks for a check of all extents, because a store came, went or changed. Extents that could not be copied before
// are checked at once.
func (b *Backlog) Sweep() {
	b.mu.Lock()
	b.mu.sweep = true
	for id, f := range b.mu.failed {
		b.mu.failed[id] = retry{pause: min(f.pause, 2*minRetry)} // that it has failed stays known
	}
	for _, x := range b.mu.busy {
		x.again = true
	}
	b.mu.Unlock()
	b.Wake()
}

// Add asks for a look at one extent, without waking anybody.
func (b *Backlog) Add(id core.ExtentID, urgent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addLocked(id, urgent)
}

func (b *Backlog) addLocked(id core.ExtentID, urgent bool) {
	was, ok := b.mu.queued[id]
	if ok && (was || !urgent) {
		return
	}
	b.mu.queued[id] = urgent
	if urgent {
		b.mu.urgent = append(b.mu.urgent, id)
	} else {
		b.mu.others = append(b.mu.others, id)
	}
}

// Below asks for a look at an extent that has too few copies. A slow copy of it that is under way goes on in haste.
func (b *Backlog) Below(id core.ExtentID) {
	b.mu.Lock()
	x := b.mu.busy[id]
	b.addLocked(id, true)
	b.mu.Unlock()
	if x != nil && !x.urgent {
		x.stop(ErrUrgent)
	}
}

// Next takes an urgent extent, or another, that may be looked at now, and marks it busy until Ended. stop ends the
// look, when it has become urgent.
func (b *Backlog) Next(urgent bool, now time.Time, stop context.CancelCauseFunc) (core.ExtentID, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	queue := &b.mu.others
	if urgent {
		queue = &b.mu.urgent
	}
	for len(*queue) > 0 {
		id := (*queue)[0]
		*queue = (*queue)[1:]
		if is, ok := b.mu.queued[id]; !ok || is != urgent {
			continue
		}
		delete(b.mu.queued, id)
		_, busy := b.mu.busy[id]
		if busy || now.Before(b.mu.failed[id].after) {
			continue // the sweep, or who waits, brings it back
		}
		b.mu.busy[id] = &look{urgent: urgent, stop: stop}
		return id, true
	}
	return core.ExtentID{}, false
}

// A check that ends with one of these errors puts the extent into the other queue at once, but for ErrAway.
var (
	ErrNotUrgent = errors.New("it can wait, with the others") // what was asked for in haste
	ErrUrgent    = errors.New("it has become urgent")         // what was done slowly
	ErrAway      = errors.New("it waits for a store to come") // another look would see the same until then
)

// Ended takes an extent back that was looked at.
func (b *Backlog) Ended(id core.ExtentID, err error, now time.Time) {
	b.mu.Lock()
	x := b.mu.busy[id]
	delete(b.mu.busy, id)
	switch {
	case err == nil:
		delete(b.mu.failed, id)
	case errors.Is(err, ErrNotUrgent), errors.Is(err, ErrUrgent):
		b.addLocked(id, errors.Is(err, ErrUrgent))
	case x.again:
		b.addLocked(id, x.urgent)
	case errors.Is(err, ErrAway):
		b.mu.failed[id] = retry{pause: awayRetry, after: now.Add(awayRetry)}
	default:
		f := b.mu.failed[id]
		f.pause = min(max(2*f.pause, minRetry), maxRetry)
		f.after = now.Add(f.pause)
		b.mu.failed[id] = f
	}
	b.mu.Unlock()
	b.Wake()
}

// Rests reports whether an extent is not looked at before a time.
func (b *Backlog) Rests(id core.ExtentID, until time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return until.Before(b.mu.failed[id].after)
}

// Failing reports whether making a copy has failed more than once in a row.
func (b *Backlog) Failing(id core.ExtentID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.failed[id].pause > minRetry
}

// Lost notes that no store has all of an extent, and reports whether that is news.
func (b *Backlog) Lost(id core.ExtentID) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, was := b.mu.lost[id]
	b.mu.lost[id] = struct{}{}
	return !was
}

// Found takes that back.
func (b *Backlog) Found(id core.ExtentID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.lost, id)
}

// AllLost are the extents noted as lost, sorted.
func (b *Backlog) AllLost() []core.ExtentID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Keys(b.mu.lost), func(a, b core.ExtentID) int { return slices.Compare(a.ID[:], b.ID[:]) })
}

// TakeSweep reports whether all extents are to be looked at, once.
func (b *Backlog) TakeSweep() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.mu.sweep
	b.mu.sweep = false
	return was
}

// Forget drops what is noted of extents that need not be kept: they are gone, or another controller looks after them.
func (b *Backlog) Forget(keep func(core.ExtentID) bool) {
	b.mu.Lock()
	noted := slices.AppendSeq(slices.Collect(maps.Keys(b.mu.failed)), maps.Keys(b.mu.lost))
	b.mu.Unlock()
	for _, id := range noted {
		if !keep(id) {
			b.mu.Lock()
			delete(b.mu.failed, id)
			delete(b.mu.lost, id)
			b.mu.Unlock()
		}
	}
}
