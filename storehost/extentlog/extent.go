package extentlog

import (
	"slices"
	"sync"

	"github.com/columbamq/columba/core"
)

// extent is one replica in memory.
//
// next belongs to commitLoop alone: the state after everything it has staged. mu.state is what everybody else sees:
// only what is durable, and the highest committed seq heard of. Invariant when nothing is under way: mu.state ==
// next.state(), Committed aside.
type extent struct {
	id      core.ExtentID
	next    durable
	staged  *group // that is being staged and has changed next …
	change  int    // … which is this one of its changes
	tail    tail
	held    held
	heldIn  uint64  // serial of the segment that has its last batch; of commitLoop
	listed  listing // of the index
	waiting int     // bytes in the queue, under its lock

	mu struct {
		sync.Mutex
		state     State
		indexed   core.Seq // of a timer extent
		known     bool     // a row of it is durable
		removed   bool
		verdicts  int  // how often damage was found
		lifting   bool // the quarantine is being lifted, and no damage was found since
		ioErrors  ioErrors
		cut       bool        // a seal takes away what is beyond …
		end       core.Seq    // … this, before state says so
		followers []*follower // replaced, never changed in place
	}
}

type follower struct{ wake func() }

// state is the published state; ok is false before the first row is durable and after removal.
func (x *extent) state() (s State, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.state, x.mu.known && !x.mu.removed
}

// publish makes a durable state visible; news is whether it belongs in the inventory.
func (x *extent) publish(after durable) (news bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	was, known := x.mu.state, x.mu.known
	x.mu.state = after.state()
	x.mu.indexed = after.indexed
	x.mu.state.Committed = max(x.mu.state.Committed, was.Committed)
	if was.Damaged {
		x.mu.state.Damaged, x.mu.state.Why = true, was.Why
	}
	x.mu.known = true
	is := &x.mu.state
	return !known || is.Opened != was.Opened || is.Fenced != was.Fenced || is.Sealed != was.Sealed || is.Version != was.Version ||
		is.Damaged != was.Damaged || is.complete() != was.complete()
}

// commit notes a committed seq and reports whether it is news, and whether the extent holds timers.
func (x *extent) commit(committed core.Seq) (news, timer bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	news = committed > x.mu.state.Committed
	x.mu.state.Committed = max(x.mu.state.Committed, committed)
	return news, x.mu.state.Extent.Kind == core.KindTimer
}

func (x *extent) indexed() core.Seq {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.indexed
}

func (x *extent) committed() core.Seq {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.state.Committed
}

func (x *extent) remove() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.removed = true
}

func (x *extent) isRemoved() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.removed
}

func (x *extent) truncate(end core.Seq) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.cut, x.mu.end = true, end
}

func (x *extent) truncated() (end core.Seq, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.end, x.mu.cut
}

func (x *extent) follow(wake func()) *follower {
	f := &follower{wake: wake}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.followers = append(slices.Clone(x.mu.followers), f)
	return f
}

// unfollow reports whether that was the last follower.
func (x *extent) unfollow(f *follower) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.followers = slices.DeleteFunc(slices.Clone(x.mu.followers), func(o *follower) bool { return o == f })
	return len(x.mu.followers) == 0
}

func (x *extent) followed() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.mu.followers) > 0
}

// wake calls the followers without holding the mutex.
func (x *extent) wake() {
	x.mu.Lock()
	followers := x.mu.followers
	x.mu.Unlock()
	for _, f := range followers {
		f.wake()
	}
}
