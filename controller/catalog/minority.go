package catalog

import (
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// ofMinority reports whether only the controller that made the extent assigns its shares.
func (e *Extent) ofMinority() bool { return e.Minority != metadata.Maker{} }

// OfMinority are the extents that minorities made, oldest first, as far as their makers have not released them.
func (x *Extents) OfMinority() []Extent {
	x.mu.Lock()
	defer x.mu.Unlock()
	return sorted(func(yield func(*entry) bool) {
		for id := range x.mu.minority {
			if !yield(x.mu.byID[id]) {
				return
			}
		}
	})
}

// Release makes an extent of a minority one like all others: its shares are assigned by the controller that is
// responsible for its reader. It answers the extent, and whether it was one of a minority.
func (x *Extents) Release(id core.ExtentID) (e Extent, released bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := x.mu.byID[id]
	if at == nil {
		return e, false
	}
	if e = at.extent(); !e.ofMinority() {
		return Extent{}, false
	}
	delete(x.mu.minority, id)
	e.Minority, e.Released = metadata.Maker{}, true
	at.set(&e, &x.mu.lists)
	if reader, ok := e.Home.Reader(e.Queue); ok {
		q := x.queueLocked(reader)
		q.fresh = append(q.fresh, at)
	}
	return e, true
}
