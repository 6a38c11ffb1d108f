package catalog

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestExtents_FreshOfOtherControllers: nobody takes the fresh extents of a queue that another controller is responsible
// for. They are forgotten with the extents.
func TestExtents_FreshOfOtherControllers(t *testing.T) {
	x := NewExtents()
	queue, reader := core.QueueID{ID: core.ID{1}}, core.QueueID{ID: core.ID{2}}
	put := func(home core.Home) core.ExtentID {
		now := time.Now()
		e := core.Extent{ID: core.ExtentID{ID: core.NewID(now)}, Queue: queue}
		x.Put(Extent{ExtentRecord: metadata.ExtentRecord{Extent: e, Home: home}, State: core.ExtentOpen, Home: home})
		return e.ID
	}
	merged := core.MergedInto(reader, core.GroupID{ID: core.ID{3}})
	put(core.Home{Kind: core.HomeOwn})
	put(merged)
	for range 10 {
		x.Remove(put(core.Home{Kind: core.HomeOwn}))
		x.Remove(put(merged))
		id := put(merged)
		x.Change(id, func(e *Extent) { e.Home = core.Home{Kind: core.HomePurged} })
		x.Remove(id)
	}
	for _, id := range []core.QueueID{queue, reader} {
		if n := len(x.mu.byQueue[id].fresh); n != 1 {
			t.Errorf("%d fresh extents of queue %s are remembered, want the one that is there", n, id)
		}
	}
}
