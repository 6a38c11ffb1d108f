package catalog

import (
	"maps"
	"slices"

	"github.com/columbamq/columba/core"
)

// TakeUnfinished answers, in no order, the extents that are news for rounds of seals since it was called last: those
// whose seal was under way or not told to its holders, and that came, went or changed, and the open ones that came or
// changed while their writer was gone, or whose writer is found gone. The time that it takes goes by their number, and
// by that of writers: extents are many. gone must not block.
func (x *Extents) TakeUnfinished(gone func(HostRun) bool) []core.ExtentID {
	x.mu.Lock()
	defer x.mu.Unlock()
	for w, open := range x.mu.byWriter {
		_, before := x.mu.gone[w]
		switch now := gone(w); {
		case now && !before:
			x.mu.gone[w] = struct{}{}
			for id := range open {
				x.mu.news[id] = struct{}{}
			}
		case !now && before:
			delete(x.mu.gone, w)
		}
	}
	maps.DeleteFunc(x.mu.gone, func(w HostRun, _ struct{}) bool { return x.mu.byWriter[w] == nil })
	if len(x.mu.news) == 0 {
		return nil
	}
	out := slices.Collect(maps.Keys(x.mu.news))
	x.mu.news = make(map[core.ExtentID]struct{}) // a cleared one would keep its size
	return out
}

// RenewUnfinished has TakeUnfinished answer all of its kind once more, not only what is news.
func (x *Extents) RenewUnfinished() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range x.mu.unfinished {
		x.mu.news[id] = struct{}{}
	}
	clear(x.mu.gone)
}
