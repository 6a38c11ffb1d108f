package catalog

import (
	"iter"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// scanAtOnce is how many extents a scan looks at before it lets go of the lock.
const scanAtOnce = 512

// Brief is the part of an Extent that rounds over many extents read. It takes a third of the time to copy.
type Brief struct {
	ID       core.ExtentID
	Queue    core.QueueID
	State    core.ExtentState
	Home     core.Home
	Kept     time.Time
	Replicas []core.HostID // shared, and never changed in place
}

func (at *entry) brief() Brief {
	b := Brief{ID: at.id, Queue: at.queue, State: at.state.Value(), Kept: at.kept.time(), Replicas: at.replicas.hosts}
	if at.rare != nil {
		b.Home = at.rare.home
	}
	return b
}

// All are the extents that which is true for, in no order.
func (x *Extents) All(which func(*Extent) bool) iter.Seq[Extent] { return x.scan(x.ids(), which) }

// Open are the open extents that which is true for, in no order.
func (x *Extents) Open(which func(*Extent) bool) iter.Seq[Extent] {
	return x.scan(x.openIDs(), func(e *Extent) bool { return e.State == core.ExtentOpen && which(e) })
}

// WithoutEnd are the extents that have no end, in no order.
func (x *Extents) WithoutEnd() iter.Seq[Brief] {
	return scan(x, x.endlessIDs(), (*entry).brief, func(b *Brief) bool { return !b.State.HasEnd() })
}

func (x *Extents) scan(ids []core.ExtentID, which func(*Extent) bool) iter.Seq[Extent] {
	return scan(x, ids, (*entry).extent, which)
}

// scan makes a T of each extent of ids, and yields those that which is true for. Extents are many, and publishers wait
// for the lock: they get their turn after each portion, and the lock is free while a T is yielded. An extent may come,
// go or change between portions. what and which must not block.
func scan[T any](x *Extents, ids []core.ExtentID, what func(*entry) T, which func(*T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		part := make([]T, 0, min(len(ids), scanAtOnce)) // nothing is allocated under the lock
		var e T
		for some := range slices.Chunk(ids, scanAtOnce) {
			part = part[:0]
			x.mu.Lock()
			for _, id := range some {
				if at := x.mu.byID[id]; at != nil {
					if e = what(at); which(&e) {
						part = append(part, e)
					}
				}
			}
			x.mu.Unlock()
			for _, e := range part {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// ids of all extents, in no order.
func (x *Extents) ids() []core.ExtentID {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]core.ExtentID, 0, len(x.mu.byID))
	for id := range x.mu.byID {
		out = append(out, id)
	}
	return out
}

// openIDs are those of the open extents, in no order.
func (x *Extents) openIDs() []core.ExtentID {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.listOpenLocked(0)
}

// endlessIDs are those of the extents without an end, in no order. One hold of the lock lists them: an extent that
// begins to be sealed is there once.
func (x *Extents) endlessIDs() []core.ExtentID {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := x.listOpenLocked(len(x.mu.unfinished))
	for id, e := range x.mu.unfinished {
		if state := e.state.Value(); state != core.ExtentOpen && !state.HasEnd() {
			out = append(out, id)
		}
	}
	return out
}

// listOpenLocked lists the open extents, and leaves room for more.
func (x *Extents) listOpenLocked(more int) []core.ExtentID {
	n := more
	for _, open := range x.mu.byWriter {
		n += len(open)
	}
	out := make([]core.ExtentID, 0, n)
	for _, open := range x.mu.byWriter {
		for id := range open {
			out = append(out, id)
		}
	}
	return out
}
