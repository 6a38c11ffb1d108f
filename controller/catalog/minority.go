package catalog

import (
	"slices"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// ofMinority reports whether only the controller that made the extent assigns its shares.
func (e *Extent) ofMinority() bool { return e.Minority != metadata.Maker{} }

// OfMinority are the extents that minorities made, oldest first, as far as their makers have not released them.
func (x *Extents) OfMinority() []Extent {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]Extent, 0, len(x.mu.minority))
	for id := range x.mu.minority {
		out = append(out, *x.mu.byID[id])
	}
	slices.SortFunc(out, func(a, b Extent) int { return slices.Compare(a.ID.ID[:], b.ID.ID[:]) })
	return out
}

// Release makes an extent of a minority one like all others: its shares are assigned by the controller that is responsible for its reader. It answers the
// extent, and whether it was one of a minority.
func (x *Extents) Release(id core.ExtentID) (e Extent, released bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := x.mu.byID[id]
	if at == nil || !at.ofMinority() {
		return e, false
	}
	delete(x.mu.minority, id)
	at.Minority, at.Released = metadata.Maker{}, true
	if reader, ok := at.Home.Reader(at.Queue); ok {
		q := x.queueLocked(reader)
		q.fresh = append(q.fresh, at.Extent)
	}
	return *at, true
}
