package controller

import (
	"slices"

	"github.com/columbamq/columba/controller/backlog"
	"github.com/columbamq/columba/controller/repair"
	"github.com/columbamq/columba/core"
)

// scanAtOnce is how many extents a scan looks at before it lets go of the lock.
const scanAtOnce = 512

// scan answers of of those extents of ids that which is true for. Extents are many, and publishers wait for the lock: they get their turn after each
// portion. An extent may come, go or change between portions. Neither which nor of may block.
func scan[T any](x *extents, ids []core.ExtentID, which func(*extent) bool, of func(*extent) T) (out []T) {
	part := make([]T, 0, min(len(ids), scanAtOnce)) // nothing is allocated under the lock
	for some := range slices.Chunk(ids, scanAtOnce) {
		part = part[:0]
		x.mu.Lock()
		for _, id := range some {
			if e := x.mu.byID[id]; e != nil && which(e) {
				part = append(part, of(e))
			}
		}
		x.mu.Unlock()
		out = append(out, part...)
	}
	return out
}

// ids of all extents, in no order.
func (x *extents) ids() []core.ExtentID {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]core.ExtentID, 0, len(x.mu.byID))
	for id := range x.mu.byID {
		out = append(out, id)
	}
	return out
}

// openIDs are those of the open extents, in no order.
func (x *extents) openIDs() []core.ExtentID {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.listOpenLocked(0)
}

// endlessIDs are those of the extents without an end, in no order. One hold of the lock lists them: an extent that begins to be sealed is there once.
func (x *extents) endlessIDs() []core.ExtentID {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := x.listOpenLocked(len(x.mu.unfinished))
	for id, e := range x.mu.unfinished {
		if e.state != core.ExtentOpen && !e.state.HasEnd() {
			out = append(out, id)
		}
	}
	return out
}

// listOpenLocked lists the open extents, and leaves room for more.
func (x *extents) listOpenLocked(more int) []core.ExtentID {
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

// pick answers the ids of those that which is true for; see scan.
func (x *extents) pick(which func(*extent) bool) []core.ExtentID {
	return scan(x, x.ids(), which, func(e *extent) core.ExtentID { return e.ID })
}

// pickOpen answers those of the open ones that which is true for; see scan.
func (x *extents) pickOpen(which func(*extent) bool) []core.Extent {
	isOpen := func(e *extent) bool { return e.state == core.ExtentOpen && which(e) }
	return scan(x, x.openIDs(), isOpen, func(e *extent) core.Extent { return e.Extent })
}

// withoutEnd are those that have no end, as backlogs need them; see scan.
func (x *extents) withoutEnd() []backlog.Extent {
	endless := func(e *extent) bool { return !e.state.HasEnd() }
	return scan(x, x.endlessIDs(), endless, (*extent).counted)
}

// toRepair are those that which is true for, as repair needs them; see scan.
func (x *extents) toRepair(which func(*extent) bool) []repair.Extent {
	return scan(x, x.ids(), which, func(e *extent) repair.Extent { return toRepair(*e) })
}
