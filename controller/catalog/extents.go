package catalog

import (
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Extents are the live ones of all queues. Safe for concurrent use.
type Extents struct {
	GivenUp func(core.Extent) // told when a row says something new of what was given up, by whomever it was read

	mu struct {
		sync.Mutex
		byID       map[core.ExtentID]*entry
		byQueue    map[core.QueueID]*ofQueue
		byWriter   map[HostRun]map[core.ExtentID]*entry // the open ones
		unfinished map[core.ExtentID]*entry             // whose seal is under way or not told to its holders
		news       map[core.ExtentID]struct{}           // of TakeUnfinished
		gone       map[HostRun]struct{}                 // of byWriter: those that were gone when TakeUnfinished was called last
		minority   map[core.ExtentID]struct{}           // of byID: those that minorities made
		changed    map[core.QueueID]struct{}            // queues of which extents came, went or changed since they were taken; see takeChanged
		edits      uint64                               // of all queues; see Edit
		ends       uint64                               // how often an extent got its end, or other holders
		lists      placesTable
	}
}

// HostRun is a run of a host.
type HostRun struct {
	Host core.HostID
	Run  core.RunID
}

// NewExtents is an empty catalog.
func NewExtents() *Extents {
	e := &Extents{}
	e.mu.byID = make(map[core.ExtentID]*entry)
	e.mu.byQueue = make(map[core.QueueID]*ofQueue)
	e.mu.byWriter = make(map[HostRun]map[core.ExtentID]*entry)
	e.mu.unfinished = make(map[core.ExtentID]*entry)
	e.mu.news = make(map[core.ExtentID]struct{})
	e.mu.gone = make(map[HostRun]struct{})
	e.mu.minority = make(map[core.ExtentID]struct{})
	e.mu.changed = make(map[core.QueueID]struct{})
	return e
}

// Put adds an extent that is not there. Of one that is there it takes over no more than Made.
func (x *Extents) Put(e Extent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if known := x.mu.byID[e.ID]; known != nil {
		known.made = known.made || e.Made // its rows were read before its maker came to put it
		return
	}
	at := &entry{}
	at.set(&e, &x.mu.lists)
	x.mu.byID[e.ID] = at
	if e.ofMinority() {
		x.mu.minority[e.ID] = struct{}{}
	}
	q := x.queueLocked(e.Queue)
	q.in(e.State).add(at)
	if e.Chain > 0 && (q.last == nil || e.Chain > q.last.chain()) {
		q.last = at
	}
	if e.Home.Kind == core.HomeOwn && !e.ofMinority() {
		q.fresh = append(q.fresh, at)
	}
	x.indexLocked(at, &e)
	x.lodgeLocked(at, &e)
	x.editedLocked(q)
	x.changedLocked(&e)
	if e.State.HasEnd() {
		x.mu.ends++
	}
}

// Count is how many extents there are.
func (x *Extents) Count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.mu.byID)
}

// Ends is how often an extent got its end, or other holders, as far as it was heard here.
func (x *Extents) Ends() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.ends
}

// changedLocked notes that an extent came, went or changed: for its own queue, and for the one that reads it.
func (x *Extents) changedLocked(e *Extent) {
	x.mu.changed[e.Queue] = struct{}{}
	x.mu.changed[e.Reader()] = struct{}{}
}

// TakeChanged answers and forgets the queues of which extents came, went or changed since it was called last.
func (x *Extents) TakeChanged() []core.QueueID {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := slices.Collect(maps.Keys(x.mu.changed))
	clear(x.mu.changed)
	return out
}

// Each yields the extents of a queue and those that were merged into it, in no order. It holds the lock meanwhile: the
// yield function must not block.
func (x *Extents) Each(queue core.QueueID) iter.Seq[Extent] { return each(x, queue, (*entry).extent) }

// EachBrief is Each of what is in a Brief.
func (x *Extents) EachBrief(queue core.QueueID) iter.Seq[Brief] {
	return each(x, queue, (*entry).brief)
}

func each[T any](x *Extents, queue core.QueueID, what func(*entry) T) iter.Seq[T] {
	return func(yield func(T) bool) {
		x.mu.Lock()
		defer x.mu.Unlock()
		q := x.mu.byQueue[queue]
		if q == nil {
			return
		}
		for _, some := range []iter.Seq[*entry]{q.open.each, q.others.each, maps.Values(q.merged)} {
			for at := range some {
				if !yield(what(at)) {
					return
				}
			}
		}
	}
}

// indexLocked keeps the sets in step with the state.
func (x *Extents) indexLocked(at *entry, e *Extent) {
	unfinished := e.State != core.ExtentOpen && !e.Told
	if unfinished || x.mu.unfinished[e.ID] != nil {
		x.mu.news[e.ID] = struct{}{}
	}
	set(x.mu.unfinished, at, unfinished)
	x.indexWriterLocked(at, e, e.State == core.ExtentOpen)
}

func (x *Extents) indexWriterLocked(at *entry, e *Extent, in bool) {
	w := HostRun{e.Input, e.InputRun}
	m := x.mu.byWriter[w]
	if m == nil && in {
		m = make(map[core.ExtentID]*entry)
		x.mu.byWriter[w] = m
	}
	if _, gone := x.mu.gone[w]; gone && in {
		x.mu.news[e.ID] = struct{}{}
	}
	if set(m, at, in); len(m) == 0 {
		delete(x.mu.byWriter, w)
	}
}

func set(m map[core.ExtentID]*entry, at *entry, in bool) {
	if in {
		m[at.id] = at
	} else {
		delete(m, at.id)
	}
}

// Remove forgets an extent that is retired.
func (x *Extents) Remove(id core.ExtentID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := x.mu.byID[id]
	if at == nil {
		return
	}
	e := at.extent()
	q := x.mu.byQueue[e.Queue]
	delete(x.mu.byID, id)
	delete(x.mu.minority, id)
	if x.mu.unfinished[id] != nil {
		x.mu.news[id] = struct{}{}
	}
	delete(x.mu.unfinished, id)
	x.indexWriterLocked(at, &e, false)
	q.in(e.State).remove(at)
	q.unfresh(at)
	x.editedLocked(q)
	x.unlodgeLocked(at, &e)
	x.forgetEmptyLocked(e.Queue)
	x.changedLocked(&e)
}

// Took brings an extent that is there up to its row.
func (x *Extents) Took(row metadata.SealRecord) {
	news := false
	x.Change(row.Extent.ID, func(e *Extent) {
		before := e.LostFrom
		*e = e.Took(row)
		news = e.LostFrom != before
	})
	if news && x.GivenUp != nil {
		x.GivenUp(row.Extent)
	}
}

// Change edits the cached state of an extent that is there.
func (x *Extents) Change(id core.ExtentID, f func(*Extent)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := x.mu.byID[id]
	if at == nil {
		return
	}
	was := at.extent()
	e := was
	f(&e)
	at.set(&e, &x.mu.lists)
	q := x.mu.byQueue[e.Queue]
	x.editedLocked(q)
	if q.in(was.State) != q.in(e.State) {
		q.in(was.State).remove(at)
		q.in(e.State).add(at)
	}
	x.indexLocked(at, &e)
	if e.State != was.State || e.L != was.L || e.Bytes != was.Bytes || e.Removed != was.Removed || e.Home != was.Home {
		x.changedLocked(&was)
		x.changedLocked(&e)
	}
	if e.State.HasEnd() && (e.State != was.State || e.Version != was.Version) {
		x.mu.ends++
	}
	if e.Home != was.Home {
		x.unlodgeLocked(at, &was)
		x.lodgeLocked(at, &e)
	}
}

// Get is what is known of an extent.
func (x *Extents) Get(id core.ExtentID) (Extent, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at := x.mu.byID[id]; at != nil {
		return at.extent(), true
	}
	return Extent{}, false
}

// Of a queue: its live extents, oldest first.
func (x *Extents) Of(queue core.QueueID) []Extent {
	x.mu.Lock()
	defer x.mu.Unlock()
	if q := x.mu.byQueue[queue]; q != nil {
		return sorted(q.open.each, q.others.each)
	}
	return nil
}

// ReadBy are the extents that a group of a queue reads, oldest first, but for those that a minority made.
func (x *Extents) ReadBy(queue core.QueueID, group core.GroupID) []Extent {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := x.mu.byQueue[queue]
	if q == nil {
		return nil
	}
	out := append(sorted(maps.Values(q.merged)), sorted(q.open.each, q.others.each)...)
	return slices.DeleteFunc(out, func(e Extent) bool { return e.ofMinority() || !e.Home.ReadBy(group) })
}

// OpenOf a queue: its open extents, oldest first.
func (x *Extents) OpenOf(queue core.QueueID) []Extent {
	x.mu.Lock()
	defer x.mu.Unlock()
	if q := x.mu.byQueue[queue]; q != nil {
		return sorted(q.open.each)
	}
	return nil
}

// TakeFresh answers the extents of a queue that were put since it was last asked. Those of its chain beyond a place
// wait until it is asked again.
func (x *Extents) TakeFresh(queue core.QueueID, upTo uint64) (out []core.Extent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := x.mu.byQueue[queue]
	if q == nil {
		return nil
	}
	var later []*entry
	for _, at := range q.fresh {
		if e := at.tuple(); e.Queue == queue && e.Chain > upTo {
			later = append(later, at)
		} else {
			out = append(out, e)
		}
	}
	q.fresh = later
	return out
}

// LastOfChain is the extent of a queue with the last place in its chain, also if it was retired; false: none has a
// place.
func (x *Extents) LastOfChain(queue core.QueueID) (last core.Extent, some bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if q := x.mu.byQueue[queue]; q != nil && q.last != nil {
		last = q.last.tuple()
	}
	return last, last.Chain > 0
}

// Queues are those that have live extents.
func (x *Extents) Queues() []core.QueueID {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]core.QueueID, 0, len(x.mu.byQueue))
	for q := range x.mu.byQueue {
		out = append(out, q)
	}
	return out
}

// Has reports whether a queue has live extents.
func (x *Extents) Has(queue core.QueueID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.byQueue[queue] != nil
}

// AnyOn reports whether a sealed extent has a copy at a place.
func (x *Extents) AnyOn(at core.Place) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, is := range x.mu.byID {
		if slices.Contains(is.holders.all, at) {
			return true
		}
	}
	return false
}
