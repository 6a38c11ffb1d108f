package catalog

import (
	"cmp"
	"maps"
	"slices"

	"github.com/columbamq/columba/core"
)

// list is all shares of one queue that one run of an output host owns. It stays, empty, until the owner has confirmed
// that it gave the last of them away:
//
//	made ──a share, or what is told of it, changes──▶ unconfirmed ──the owner has resumed all──▶ confirmed
//	            ▲                                        │  ▲ │                                    │
//	            └────────────────────────────────────────┘  │ └─ empty, and taken ─▶ forgotten ◀───┘ empty
//	                          the owner has a newer one ────┘
//
// taken ≤ counter, confirmed ≤ taken.
type list struct {
	owner     HostRun
	queue     core.QueueID
	shares    map[*owned]struct{}
	leaving   map[*owned]struct{} // shares of other lists that wait until this owner has given them away
	counter   uint64              // its version
	taken     uint64              // up to here the owner has given away what the list lacks …
	confirmed uint64              // … and resumed what it has
	leftOut   int                 // shares that did not fit into it when it was sent last
}

// owner has the lists of one run of an output host.
type owner struct {
	lists       map[core.QueueID]*list
	unconfirmed map[core.QueueID]*list
	changed     chan struct{} // capacity 1: there may be more to send, for who sends
	pushing     bool          // its lists are being sent
	told        bool          // all lists were sent once
}

func (x *Shares) ownerLocked(o HostRun) *owner {
	w := x.mu.owners[o]
	if w == nil {
		w = &owner{lists: make(map[core.QueueID]*list), unconfirmed: make(map[core.QueueID]*list), changed: make(chan struct{}, 1)}
		x.mu.owners[o] = w
	}
	return w
}

// listLocked is a list, made if it is not there.
func (x *Shares) listLocked(o HostRun, queue core.QueueID) *list {
	w := x.ownerLocked(o)
	l := w.lists[queue]
	if l == nil {
		l = &list{owner: o, queue: queue, shares: make(map[*owned]struct{}), leaving: make(map[*owned]struct{})}
		w.lists[queue] = l
		if x.mu.queues[queue] == nil {
			x.mu.queues[queue] = make(map[*list]struct{})
		}
		x.mu.queues[queue][l] = struct{}{}
	}
	return l
}

// knownLocked is a list that is there; nil when it is not.
func (x *Shares) knownLocked(o HostRun, queue core.QueueID) *list {
	if w := x.mu.owners[o]; w != nil {
		return w.lists[queue]
	}
	return nil
}

// raiseLocked makes a list newer than all others.
func (x *Shares) raiseLocked(l *list) {
	x.mu.counter++
	l.counter = x.mu.counter
	x.mu.owners[l.owner].unconfirmed[l.queue] = l
}

// forgetEmptyLocked forgets a list that tells nobody anything.
func (x *Shares) forgetEmptyLocked(l *list) {
	if len(l.shares)+len(l.leaving) > 0 {
		return
	}
	w := x.mu.owners[l.owner]
	delete(w.lists, l.queue)
	delete(w.unconfirmed, l.queue)
	delete(x.mu.queues[l.queue], l)
	if len(x.mu.queues[l.queue]) == 0 {
		delete(x.mu.queues, l.queue)
	}
	x.mu.leftOut -= l.leftOut
}

// Forget drops the lists without shares of runs that are gone: nobody confirms them any more. A run that comes back is
// told again which lists are all, so that it gives up what the others had.
func (x *Shares) Forget(gone func(HostRun) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for o, w := range x.mu.owners {
		if w.pushing || !gone(o) {
			continue
		}
		for _, l := range w.lists {
			x.forgetEmptyLocked(l)
		}
		w.told = false
		if len(w.lists) == 0 {
			delete(x.mu.owners, o)
		}
	}
}

func (x *Shares) version(counter uint64) core.ListVersion {
	return core.ListVersion{Counter: counter, Controller: x.self.Host, Run: x.self.Run}
}

// List is the list of a queue for an owner.
type List struct {
	Version core.ListVersion
	Shares  []Decision              // that the owner is to be told of, in no order
	Epochs  map[core.GroupID]uint64 // of the groups of these that were rewound
}

// List is what an owner is to be told of a queue; empty when it owns nothing of it. It is newer than known, the version
// that the owner has.
func (x *Shares) List(o HostRun, queue core.QueueID, known core.ListVersion) List {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.knownLocked(o, queue)
	switch {
	case l == nil:
		x.heardLocked(known.Counter)
		x.mu.counter++
		return List{Version: x.version(x.mu.counter)}
	case known.Compare(x.version(l.counter)) > 0:
		x.raiseAboveLocked(l, known)
	}
	out := List{Version: x.version(l.counter), Shares: make([]Decision, 0, len(l.shares)), Epochs: make(map[core.GroupID]uint64)}
	hidden := l.hidden()
	for d := range l.shares {
		if hidden(d) {
			continue
		}
		out.Shares = append(out.Shares, d.Decision)
		if epoch := x.mu.epochs[d.Group]; epoch > 0 {
			out.Epochs[d.Group] = epoch
		}
	}
	return out
}

func (x *Shares) raiseAboveLocked(l *list, known core.ListVersion) {
	x.heardLocked(known.Counter)
	x.raiseLocked(l)
}

// QueueVersion is the version of the list of a queue.
type QueueVersion struct {
	Queue   core.QueueID
	Version core.ListVersion
}

// Versions are those of an owner's lists in the order of their queues, at most limit, from behind a queue on.
func (x *Shares) Versions(o HostRun, after core.QueueID, limit int) (page []QueueVersion, more bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.mu.owners[o]
	if w == nil {
		return nil, false
	}
	for queue, l := range w.lists {
		if compareQueues(queue, after) > 0 {
			page = append(page, QueueVersion{queue, x.version(l.counter)})
		}
	}
	slices.SortFunc(page, func(a, b QueueVersion) int { return compareQueues(a.Queue, b.Queue) })
	return page[:min(len(page), limit)], len(page) > limit
}

func compareQueues(a, b core.QueueID) int { return slices.Compare(a.ID[:], b.ID[:]) }

// BeginPush reports whether there is something to send to an owner, and nobody sends it already; the caller does, until
// Due says that there is nothing more. A push that is under way is told by Changed.
func (x *Shares) BeginPush(o HostRun) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.ownerLocked(o)
	if w.pushing {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
	if w.pushing || w.told && len(w.unconfirmed) == 0 {
		return false
	}
	w.pushing = true
	return true
}

// Changed tells who pushes to an owner that there may be more to send.
func (x *Shares) Changed(o HostRun) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ownerLocked(o).changed
}

// EndPush ends a push that Due has not ended.
func (x *Shares) EndPush(o HostRun) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ownerLocked(o).pushing = false
}

// Due are the queues whose lists an owner has not confirmed, in their order. Lists that skip has with their counter are
// left out, and lists that rest stay for later. When more is false, the push has ended.
func (x *Shares) Due(o HostRun, skip map[core.QueueID]uint64, rests func(core.QueueID) bool) (due []core.QueueID, more bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.ownerLocked(o)
	for queue, l := range w.unconfirmed {
		switch {
		case skip[queue] == l.counter:
		case rests(queue):
			more = true
		default:
			due = append(due, queue)
		}
	}
	slices.SortFunc(due, compareQueues)
	more = more || len(due) > 0 || !w.told
	w.pushing = more
	return due, more
}

// Told notes that an owner was sent all lists.
func (x *Shares) Told(o HostRun) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ownerLocked(o).told = true
}

// WasTold reports whether an owner was sent all lists.
func (x *Shares) WasTold(o HostRun) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ownerLocked(o).told
}

// Answered notes what an owner said to a list that it was sent with a version: newest counts there now, and all of it
// is resumed, or not. A list that is older than that is raised above it. It answers the counter of the list now; 0: it
// is forgotten.
func (x *Shares) Answered(o HostRun, queue core.QueueID, sent, newest core.ListVersion, resumed bool) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.knownLocked(o, queue)
	if l == nil {
		return 0
	}
	switch {
	case newest != sent:
		if newest.Compare(x.version(l.counter)) > 0 {
			x.raiseAboveLocked(l, newest)
		}
	default:
		l.taken = max(l.taken, sent.Counter)
		x.givenLocked(l)
		if resumed {
			l.confirmed = max(l.confirmed, sent.Counter)
		}
		if l.confirmed == l.counter {
			delete(x.mu.owners[o].unconfirmed, queue)
			x.forgetEmptyLocked(l)
		}
	}
	return l.counter
}

// LeftOut notes how many shares did not fit into a list: of all lists now, and whether it is the first time for this
// one.
func (x *Shares) LeftOut(o HostRun, queue core.QueueID, left int) (all int, news bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l := x.knownLocked(o, queue); l != nil {
		news = left > 0 && l.leftOut == 0
		x.mu.leftOut += left - l.leftOut
		l.leftOut = left
	}
	return x.mu.leftOut, news
}

// Marked is a list that somebody waits for.
type Marked struct {
	Owner   HostRun
	Queue   core.QueueID
	counter uint64
}

// Mark are the lists of a queue that these owners have not confirmed. One that has no list is sent an empty one: it may
// have shares that it was given by another controller, of which this one knows nothing.
func (x *Shares) Mark(queue core.QueueID, owners []HostRun) (out []Marked) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, o := range owners {
		if x.knownLocked(o, queue) == nil {
			x.raiseLocked(x.listLocked(o, queue))
		}
		if l := x.knownLocked(o, queue); l.confirmed < l.counter {
			out = append(out, Marked{o, queue, l.counter})
		}
	}
	return out
}

// Unheard are the owners that have not confirmed a list as it was marked, or a newer one.
func (x *Shares) Unheard(marked []Marked) []HostRun {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make(map[HostRun]struct{})
	for _, m := range marked {
		if l := x.knownLocked(m.Owner, m.Queue); l != nil && l.confirmed < m.counter {
			out[m.Owner] = struct{}{}
		}
	}
	return slices.SortedFunc(maps.Keys(out), func(a, b HostRun) int { return cmp.Compare(a.Host, b.Host) })
}
