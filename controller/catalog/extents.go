package catalog

import (
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// ofQueue are the live extents of one queue, and those of others that its groups read.
type ofQueue struct {
	all    map[core.ExtentID]*Extent
	open   map[core.ExtentID]*Extent
	merged map[core.ExtentID]*Extent
	fresh  []core.Extent // not given to the groups yet
	last   core.Extent   // the one with the last place of a chain that was ever put; zero: none had a place
}

// Extents are the live ones of all queues. Safe for concurrent use.
type Extents struct {
	GivenUp func(core.Extent) // told when a row says something new of what was given up, by whomever it was read

	mu struct {
		sync.Mutex
		byID       map[core.ExtentID]*Extent
		byQueue    map[core.QueueID]*ofQueue
		byWriter   map[HostRun]map[core.ExtentID]*Extent // the open ones
		unfinished map[core.ExtentID]*Extent             // whose seal is under way or not told to its holders
		news       map[core.ExtentID]struct{}            // of TakeUnfinished
		gone       map[HostRun]struct{}                  // of byWriter: those that were gone when TakeUnfinished was called last
		minority   map[core.ExtentID]struct{}            // of byID: those that minorities made
		changed    map[core.QueueID]struct{}             // queues of which extents came, went or changed since they were taken; see takeChanged
		ends       uint64                                // how often an extent got its end, or other holders
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
	e.mu.byID = make(map[core.ExtentID]*Extent)
	e.mu.byQueue = make(map[core.QueueID]*ofQueue)
	e.mu.byWriter = make(map[HostRun]map[core.ExtentID]*Extent)
	e.mu.unfinished = make(map[core.ExtentID]*Extent)
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
		known.Made = known.Made || e.Made // its rows were read before its maker came to put it
		return
	}
	x.mu.byID[e.ID] = &e
	if e.ofMinority() {
		x.mu.minority[e.ID] = struct{}{}
	}
	q := x.queueLocked(e.Queue)
	q.all[e.ID] = &e
	if e.Chain > q.last.Chain {
		q.last = e.Extent
	}
	if e.Home.Kind == core.HomeOwn && !e.ofMinority() {
		q.fresh = append(q.fresh, e.Extent)
	}
	x.indexLocked(&e)
	x.lodgeLocked(&e)
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
func (x *Extents) Each(queue core.QueueID) iter.Seq[Extent] {
	return func(yield func(Extent) bool) {
		x.mu.Lock()
		defer x.mu.Unlock()
		q := x.mu.byQueue[queue]
		if q == nil {
			return
		}
		for _, all := range []map[core.ExtentID]*Extent{q.all, q.merged} {
			for _, e := range all {
				if !yield(*e) {
					return
				}
			}
		}
	}
}

func (x *Extents) queueLocked(id core.QueueID) *ofQueue {
	q := x.mu.byQueue[id]
	if q == nil {
		q = &ofQueue{all: make(map[core.ExtentID]*Extent), open: make(map[core.ExtentID]*Extent), merged: make(map[core.ExtentID]*Extent)}
		x.mu.byQueue[id] = q
	}
	return q
}

// lodgeLocked adds an extent to the queue that it was merged into, unlodgeLocked removes it there.
func (x *Extents) lodgeLocked(e *Extent) {
	if e.Home.Kind == core.HomeMerged {
		q := x.queueLocked(e.Home.Queue)
		q.merged[e.ID] = e
		if !e.ofMinority() {
			q.fresh = append(q.fresh, e.Extent)
		}
	}
}

func (x *Extents) unlodgeLocked(e *Extent) {
	if e.Home.Kind == core.HomeMerged {
		q := x.mu.byQueue[e.Home.Queue]
		delete(q.merged, e.ID)
		q.unfresh(e.ID)
		x.forgetEmptyLocked(e.Home.Queue)
	}
}

// unfresh forgets an extent that nobody has taken from those that are fresh: nobody does of a queue that another controller is responsible for.
func (q *ofQueue) unfresh(id core.ExtentID) {
	q.fresh = slices.DeleteFunc(q.fresh, func(e core.Extent) bool { return e.ID == id })
}

func (x *Extents) forgetEmptyLocked(id core.QueueID) {
	if q := x.mu.byQueue[id]; q != nil && len(q.all)+len(q.merged) == 0 {
		delete(x.mu.byQueue, id)
	}
}

// indexLocked keeps the sets in step with the state.
func (x *Extents) indexLocked(e *Extent) {
	set(x.mu.byQueue[e.Queue].open, e, e.State == core.ExtentOpen)
	unfinished := e.State != core.ExtentOpen && !e.Told
	if unfinished || x.mu.unfinished[e.ID] != nil {
		x.mu.news[e.ID] = struct{}{}
	}
	set(x.mu.unfinished, e, unfinished)
	x.indexWriterLocked(e, e.State == core.ExtentOpen)
}

func (x *Extents) indexWriterLocked(e *Extent, in bool) {
	w := HostRun{e.Input, e.InputRun}
	m := x.mu.byWriter[w]
	if m == nil && in {
		m = make(map[core.ExtentID]*Extent)
		x.mu.byWriter[w] = m
	}
	if _, gone := x.mu.gone[w]; gone && in {
		x.mu.news[e.ID] = struct{}{}
	}
	if set(m, e, in); len(m) == 0 {
		delete(x.mu.byWriter, w)
	}
}

func set(m map[core.ExtentID]*Extent, e *Extent, in bool) {
	if in {
		m[e.ID] = e
	} else {
		delete(m, e.ID)
	}
}

// Remove forgets an extent that is retired.
func (x *Extents) Remove(id core.ExtentID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.mu.byID[id]
	if e == nil {
		return
	}
	q := x.mu.byQueue[e.Queue]
	delete(x.mu.byID, id)
	delete(x.mu.minority, id)
	if x.mu.unfinished[id] != nil {
		x.mu.news[id] = struct{}{}
	}
	delete(x.mu.unfinished, id)
	x.indexWriterLocked(e, false)
	delete(q.all, id)
	delete(q.open, id)
	q.unfresh(id)
	x.unlodgeLocked(e)
	x.forgetEmptyLocked(e.Queue)
	x.changedLocked(e)
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
	e := x.mu.byID[id]
	if e == nil {
		return
	}
	was := *e
	f(e)
	x.indexLocked(e)
	if e.State != was.State || e.L != was.L || e.Bytes != was.Bytes || e.Removed != was.Removed || e.Home != was.Home {
		x.changedLocked(&was)
		x.changedLocked(e)
	}
	if e.State.HasEnd() && (e.State != was.State || e.Version != was.Version) {
		x.mu.ends++
	}
	if e.Home != was.Home {
		x.unlodgeLocked(&was)
		x.lodgeLocked(e)
	}
}

// Get is what is known of an extent.
func (x *Extents) Get(id core.ExtentID) (Extent, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.mu.byID[id]; e != nil {
		return *e, true
	}
	return Extent{}, false
}

// Of a queue: its live extents, oldest first.
func (x *Extents) Of(queue core.QueueID) []Extent {
	x.mu.Lock()
	defer x.mu.Unlock()
	if q := x.mu.byQueue[queue]; q != nil {
		return sorted(q.all)
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
	out := append(sorted(q.merged), sorted(q.all)...)
	return slices.DeleteFunc(out, func(e Extent) bool { return e.ofMinority() || !e.Home.ReadBy(group) })
}

// OpenOf a queue: its open extents, oldest first.
func (x *Extents) OpenOf(queue core.QueueID) []Extent {
	x.mu.Lock()
	defer x.mu.Unlock()
	if q := x.mu.byQueue[queue]; q != nil {
		return sorted(q.open)
	}
	return nil
}

// TakeFresh answers the extents of a queue that were put since it was last asked. Those of its chain beyond a place wait until it is asked again.
func (x *Extents) TakeFresh(queue core.QueueID, upTo uint64) (out []core.Extent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := x.mu.byQueue[queue]
	if q == nil {
		return nil
	}
	var later []core.Extent
	for _, e := range q.fresh {
		if e.Queue == queue && e.Chain > upTo {
			later = append(later, e)
		} else {
			out = append(out, e)
		}
	}
	q.fresh = later
	return out
}

// LastOfChain is the extent of a queue with the last place in its chain, also if it was retired; false: none has a place.
func (x *Extents) LastOfChain(queue core.QueueID) (last core.Extent, some bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if q := x.mu.byQueue[queue]; q != nil {
		last = q.last
	}
	return last, last.Chain > 0
}

func sorted(m map[core.ExtentID]*Extent) []Extent {
	out := make([]Extent, 0, len(m))
	for _, e := range m {
		out = append(out, *e)
	}
	slices.SortFunc(out, func(a, b Extent) int { return slices.Compare(a.ID.ID[:], b.ID.ID[:]) })
	return out
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
	for _, e := range x.mu.byID {
		if slices.Contains(e.Holders, at) {
			return true
		}
	}
	return false
}
