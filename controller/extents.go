package controller

import (
	"maps"
	"slices"
	"sync"

	"github.com/columbamq/columba/controller/quota"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// ofQueue are the live extents of one queue, and those of others that its groups read.
type ofQueue struct {
	all    map[core.ExtentID]*extent
	open   map[core.ExtentID]*extent
	merged map[core.ExtentID]*extent
	fresh  []core.Extent // not given to the groups yet
}

// extents are the live ones of all queues. Safe for concurrent use.
type extents struct {
	givenUp func(core.Extent) // told when a row says something new of what was given up, by whomever it was read

	mu struct {
		sync.Mutex
		byID       map[core.ExtentID]*extent
		byQueue    map[core.QueueID]*ofQueue
		byWriter   map[writerRun]map[core.ExtentID]*extent // the open ones
		unfinished map[core.ExtentID]*extent               // whose seal is under way or not told to its holders
		changed    map[core.QueueID]struct{}               // queues of which extents came, went or changed since they were taken; see takeChanged
	}
}

// writerRun is a run of an input host.
type writerRun struct {
	host core.HostID
	run  core.RunID
}

func newExtents() *extents {
	e := &extents{}
	e.mu.byID = make(map[core.ExtentID]*extent)
	e.mu.byQueue = make(map[core.QueueID]*ofQueue)
	e.mu.byWriter = make(map[writerRun]map[core.ExtentID]*extent)
	e.mu.unfinished = make(map[core.ExtentID]*extent)
	e.mu.changed = make(map[core.QueueID]struct{})
	return e
}

func (x *extents) put(e extent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.byID[e.ID] != nil {
		return
	}
	x.mu.byID[e.ID] = &e
	q := x.queueLocked(e.Queue)
	q.all[e.ID] = &e
	if e.home.Kind == core.HomeOwn {
		q.fresh = append(q.fresh, e.Extent)
	}
	x.indexLocked(&e)
	x.lodgeLocked(&e)
	x.changedLocked(&e)
}

// changedLocked notes that an extent came, went or changed: for its own queue, and for the one that reads it.
func (x *extents) changedLocked(e *extent) {
	x.mu.changed[e.Queue] = struct{}{}
	x.mu.changed[e.reader()] = struct{}{}
}

// takeChanged answers and forgets the queues of which extents came, went or changed since it was called last.
func (x *extents) takeChanged() []core.QueueID {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := slices.Collect(maps.Keys(x.mu.changed))
	clear(x.mu.changed)
	return out
}

// each calls f with the extents of a queue and those that were merged into it, in no order. f must not block, nor keep or change them.
func (x *extents) each(queue core.QueueID, f func(*extent) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := x.mu.byQueue[queue]
	if q == nil {
		return
	}
	for _, all := range []map[core.ExtentID]*extent{q.all, q.merged} {
		for _, e := range all {
			if !f(e) {
				return
			}
		}
	}
}

func (x *extents) queueLocked(id core.QueueID) *ofQueue {
	q := x.mu.byQueue[id]
	if q == nil {
		q = &ofQueue{all: make(map[core.ExtentID]*extent), open: make(map[core.ExtentID]*extent), merged: make(map[core.ExtentID]*extent)}
		x.mu.byQueue[id] = q
	}
	return q
}

// lodgeLocked adds an extent to the queue that it was merged into, unlodgeLocked removes it there.
func (x *extents) lodgeLocked(e *extent) {
	if e.home.Kind == core.HomeMerged {
		q := x.queueLocked(e.home.Queue)
		q.merged[e.ID] = e
		q.fresh = append(q.fresh, e.Extent)
	}
}

func (x *extents) unlodgeLocked(e *extent) {
	if e.home.Kind == core.HomeMerged {
		delete(x.mu.byQueue[e.home.Queue].merged, e.ID)
		x.forgetEmptyLocked(e.home.Queue)
	}
}

func (x *extents) forgetEmptyLocked(id core.QueueID) {
	if q := x.mu.byQueue[id]; q != nil && len(q.all)+len(q.merged) == 0 {
		delete(x.mu.byQueue, id)
	}
}

// indexLocked keeps the sets in step with the state.
func (x *extents) indexLocked(e *extent) {
	set(x.mu.byQueue[e.Queue].open, e, e.state == core.ExtentOpen)
	set(x.mu.unfinished, e, e.state != core.ExtentOpen && !e.told)
	x.indexWriterLocked(e, e.state == core.ExtentOpen)
}

func (x *extents) indexWriterLocked(e *extent, in bool) {
	w := writerRun{e.Input, e.InputRun}
	m := x.mu.byWriter[w]
	if m == nil && in {
		m = make(map[core.ExtentID]*extent)
		x.mu.byWriter[w] = m
	}
	if set(m, e, in); len(m) == 0 {
		delete(x.mu.byWriter, w)
	}
}

func set(m map[core.ExtentID]*extent, e *extent, in bool) {
	if in {
		m[e.ID] = e
	} else {
		delete(m, e.ID)
	}
}

// remove forgets an extent that is retired.
func (x *extents) remove(id core.ExtentID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.mu.byID[id]
	if e == nil {
		return
	}
	q := x.mu.byQueue[e.Queue]
	delete(x.mu.byID, id)
	delete(x.mu.unfinished, id)
	x.indexWriterLocked(e, false)
	delete(q.all, id)
	delete(q.open, id)
	x.unlodgeLocked(e)
	x.forgetEmptyLocked(e.Queue)
	x.changedLocked(e)
}

// took brings an extent that is there up to its row.
func (x *extents) took(row metadata.SealRecord) {
	news := false
	x.change(row.Extent.ID, func(e *extent) {
		before := e.lostFrom
		*e = e.took(row)
		news = e.lostFrom != before
	})
	if news && x.givenUp != nil {
		x.givenUp(row.Extent)
	}
}

// change edits the cached state of an extent that is there.
func (x *extents) change(id core.ExtentID, f func(*extent)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.mu.byID[id]
	if e == nil {
		return
	}
	was := *e
	f(e)
	x.indexLocked(e)
	if e.state != was.state || e.l != was.l || e.bytes != was.bytes || e.removed != was.removed || e.home != was.home {
		x.changedLocked(&was)
		x.changedLocked(e)
	}
	if e.home != was.home {
		x.unlodgeLocked(&was)
		x.lodgeLocked(e)
	}
}

func (x *extents) get(id core.ExtentID) (extent, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.mu.byID[id]; e != nil {
		return *e, true
	}
	return extent{}, false
}

// of a queue, oldest first.
func (x *extents) of(queue core.QueueID) []extent {
	x.mu.Lock()
	defer x.mu.Unlock()
	if q := x.mu.byQueue[queue]; q != nil {
		return sorted(q.all)
	}
	return nil
}

// readBy are the extents that a group of a queue reads, oldest first.
func (x *extents) readBy(queue core.QueueID, group core.GroupID) []extent {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := x.mu.byQueue[queue]
	if q == nil {
		return nil
	}
	out := append(sorted(q.merged), sorted(q.all)...)
	return slices.DeleteFunc(out, func(e extent) bool { return !e.home.ReadBy(group) })
}

// stored is what a queue has that its groups read.
func (x *extents) stored(queue core.QueueID) []quota.Extent {
	var out []quota.Extent
	for _, e := range x.of(queue) {
		if e.state != core.ExtentRetired && e.home.Kind == core.HomeOwn {
			out = append(out, quota.Extent{ID: e.ID, Ended: e.state.HasEnd(), L: e.l, Bytes: e.bytes})
		}
	}
	return out
}

// openOf a queue, oldest first.
func (x *extents) openOf(queue core.QueueID) []extent {
	x.mu.Lock()
	defer x.mu.Unlock()
	if q := x.mu.byQueue[queue]; q != nil {
		return sorted(q.open)
	}
	return nil
}

// takeFresh answers the extents of a queue that were put since it was last asked.
func (x *extents) takeFresh(queue core.QueueID) []core.Extent {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := x.mu.byQueue[queue]
	if q == nil {
		return nil
	}
	out := q.fresh
	q.fresh = nil
	return out
}

func sorted(m map[core.ExtentID]*extent) []extent {
	out := make([]extent, 0, len(m))
	for _, e := range m {
		out = append(out, *e)
	}
	slices.SortFunc(out, func(a, b extent) int { return slices.Compare(a.ID.ID[:], b.ID.ID[:]) })
	return out
}

// queues that have live extents.
func (x *extents) queues() []core.QueueID {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]core.QueueID, 0, len(x.mu.byQueue))
	for q := range x.mu.byQueue {
		out = append(out, q)
	}
	return out
}

// has reports whether a queue has live extents.
func (x *extents) has(queue core.QueueID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.byQueue[queue] != nil
}

// unfinished are those whose seal is under way or not told to its holders, in no order, and the open ones whose writer is gone. The time that it takes goes by their number, and by
// that of writers: open extents are many. gone must not block.
func (x *extents) unfinished(gone func(writerRun) bool) (out []extent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	out = make([]extent, 0, len(x.mu.unfinished))
	for _, e := range x.mu.unfinished {
		out = append(out, *e)
	}
	for w, open := range x.mu.byWriter {
		if gone(w) {
			for _, e := range open {
				out = append(out, *e)
			}
		}
	}
	return out
}
