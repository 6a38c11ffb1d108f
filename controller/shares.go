package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// shares are who owns which share, and which queues are to be looked at. Rounds change them, calls read them. Safe for
// concurrent use but for queues and written, which are the rounds': they run one at a time. The looks of one round,
// which run side by side, have queues by of and setQueue.
type shares struct {
	*catalog.Shares
	wake     chan struct{} // a queue was touched
	moved    chan struct{} // a host came or went
	complete chan struct{} // closed when a round has looked at all queues
	queues   map[core.QueueID]*queueShares
	written  time.Time // of the newest rows of assignments; the rounds'
	renewals *renewals
	mu       struct {
		sync.Mutex
		touched map[core.QueueID]struct{}
		began   uint64                     // rounds that took what was touched …
		ended   uint64                     // … and those of them that have ended
		reheld  map[core.ExtentID]struct{} // whose holders changed since the last round
		going   map[metadata.Key]struct{}  // rows of assignments whose removal is under way
		looked  map[core.QueueID]struct{}  // the keys of queues, for calls
	}
}

// queueShares are the groups of one queue, as of the last look at it.
type queueShares struct {
	groups map[core.GroupID]*groupShares
	taken  time.Time     // since when this controller is responsible for it, or later
	rest   time.Duration // from the last look at it to …
	next   time.Time     // … the next one, unless it is touched; zero: at once
}

// groupShares are what a group has not consumed to the end.
type groupShares struct {
	metadata.GroupRecord
	pending map[core.ExtentID]core.Extent
}

func newShares(self catalog.HostRun, now time.Time) *shares {
	s := &shares{
		Shares: catalog.NewShares(self, now), wake: make(chan struct{}, 1), moved: make(chan struct{}, 1), complete: make(chan struct{}),
		queues: make(map[core.QueueID]*queueShares), renewals: newRenewals(),
	}
	s.mu.touched = make(map[core.QueueID]struct{})
	s.mu.reheld = make(map[core.ExtentID]struct{})
	s.mu.going = make(map[metadata.Key]struct{})
	s.mu.looked = make(map[core.QueueID]struct{})
	return s
}

// writeTime is the time of rows that are written now: above the removals of all earlier ones, also when the clock went
// back.
func (s *shares) writeTime(now time.Time) time.Time {
	if least := s.written.Add(2 * metadata.Tick); now.Before(least) {
		now = least
	}
	s.written = now
	return now
}

// beginRemoval notes that the row of an assignment is being removed.
func (s *shares) beginRemoval(k metadata.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.going[k] = struct{}{}
}

// endRemoval notes that the row is gone, or stays behind.
func (s *shares) endRemoval(k metadata.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.going, k)
}

// removals are the rows whose removal is under way. A round that reads rows afterwards passes over them.
func (s *shares) removals() map[metadata.Key]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mu.going)
}

// of is what is known of a queue's groups; nil: nothing. Only a look at that queue changes it.
func (s *shares) of(queue core.QueueID) *queueShares {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queues[queue]
}

// setQueue keeps what is known of a queue's groups; nil: nothing any more. It is the rounds'.
func (s *shares) setQueue(queue core.QueueID, q *queueShares) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q == nil {
		delete(s.queues, queue)
		delete(s.mu.looked, queue)
		return
	}
	s.queues[queue] = q
	s.mu.looked[queue] = struct{}{}
}

// yield forgets that queues were looked at for which this controller is not responsible.
func (s *shares) yield(responsible func(core.ID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.mu.looked, func(q core.QueueID, _ struct{}) bool { return !responsible(q.ID) })
}

// looked reports whether a round has looked at a queue.
func (s *shares) looked(queue core.QueueID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.mu.looked[queue]
	return ok
}

// hasYielded reports whether a queue was yielded since a round looked at it. It is the rounds'.
func (s *shares) hasYielded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.looked) < len(s.queues)
}

// touch asks for a round that looks at the queue.
func (s *shares) touch(queue core.QueueID) {
	s.later(queue)
	poke(s.wake)
}

// later remembers a queue for the next tick.
func (s *shares) later(queue core.QueueID) {
	s.mu.Lock()
	s.mu.touched[queue] = struct{}{}
	s.mu.Unlock()
}

// takeTouched returns and forgets the queues that were touched.
func (s *shares) takeTouched() []core.QueueID {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Collect(maps.Keys(s.mu.touched))
	clear(s.mu.touched)
	s.mu.began++
	return out
}

// endRound notes that what was touched before takeTouched is in the lists; what could not be looked at was touched
// again.
func (s *shares) endRound() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.ended = s.mu.began
}

// listed reports whether all that was touched of a queue is in the lists.
func (s *shares) listed(queue core.QueueID) bool {
	if !s.isComplete() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, touched := s.mu.touched[queue]
	return s.mu.began == s.mu.ended && !touched
}

// touchHolders asks for a round that tells the readers of a sealed extent where it is now.
func (s *shares) touchHolders(e core.Extent) {
	s.mu.Lock()
	s.mu.reheld[e.ID] = struct{}{}
	s.mu.Unlock()
	s.touch(e.Queue)
}

// takeReheld returns and forgets the extents whose holders changed.
func (s *shares) takeReheld() []core.ExtentID {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Collect(maps.Keys(s.mu.reheld))
	clear(s.mu.reheld)
	return out
}

// setComplete notes that a round has looked at all queues.
func (s *shares) setComplete() {
	if s.isComplete() {
		return
	}
	close(s.complete)
}

// isComplete: lists have all that this controller should know; before, one would take from its owner what is not known
// yet.
func (s *shares) isComplete() bool {
	select {
	case <-s.complete:
		return true
	default:
		return false
	}
}
