package catalog

import (
	"slices"

	"github.com/columbamq/columba/core"
)

// ofQueue are the live extents of one queue, and those of others that its groups read.
type ofQueue struct {
	open   siblings
	others siblings                 // those that are not open
	merged map[core.ExtentID]*entry // nil: none was
	fresh  []*entry                 // not given to the groups yet
	last   *entry                   // the one with the last place of a chain that was ever put; nil: none had a place
	edit   uint64                   // see Edit
}

// in are the extents of the queue that are open, or those that are not.
func (q *ofQueue) in(state core.ExtentState) *siblings {
	if state == core.ExtentOpen {
		return &q.open
	}
	return &q.others
}

// Edit is the number of the last call that put, changed or removed an extent of a queue, of all such calls. As long as
// it stays the same, so do the states, homes and ends of these extents. It is 0 if none of them came.
func (x *Extents) Edit(queue core.QueueID) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if q := x.mu.byQueue[queue]; q != nil {
		return q.edit
	}
	return 0
}

func (x *Extents) editedLocked(q *ofQueue) {
	x.mu.edits++
	q.edit = x.mu.edits
}

func (x *Extents) queueLocked(id core.QueueID) *ofQueue {
	q := x.mu.byQueue[id]
	if q == nil {
		q = &ofQueue{}
		x.mu.byQueue[id] = q
	}
	return q
}

// lodgeLocked adds an extent to the queue that it was merged into, unlodgeLocked removes it there.
func (x *Extents) lodgeLocked(at *entry, e *Extent) {
	if e.Home.Kind == core.HomeMerged {
		q := x.queueLocked(e.Home.Queue)
		if q.merged == nil {
			q.merged = make(map[core.ExtentID]*entry)
		}
		q.merged[e.ID] = at
		if !e.ofMinority() {
			q.fresh = append(q.fresh, at)
		}
	}
}

func (x *Extents) unlodgeLocked(at *entry, e *Extent) {
	if e.Home.Kind == core.HomeMerged {
		q := x.mu.byQueue[e.Home.Queue]
		delete(q.merged, e.ID)
		q.unfresh(at)
		x.forgetEmptyLocked(e.Home.Queue)
	}
}

// unfresh forgets an extent that nobody has taken from those that are fresh: nobody does of a queue that another
// controller is responsible for.
func (q *ofQueue) unfresh(at *entry) {
	q.fresh = slices.DeleteFunc(q.fresh, func(is *entry) bool { return is == at })
}

func (x *Extents) forgetEmptyLocked(id core.QueueID) {
	if q := x.mu.byQueue[id]; q != nil && q.open.first == nil && q.others.first == nil && len(q.merged) == 0 {
		delete(x.mu.byQueue, id)
	}
}
