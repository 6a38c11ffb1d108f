package operations

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestOperation_WaitingOnesHoldUpNobody: as many merges as run side by side wait for their rates, for hours; a purge of
// another queue goes on.
func TestOperation_WaitingOnesHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		defer b.meta.Close()
		for i := range byte(atOnce) {
			g := b.group
			g.ID, g.DLQ, g.Spec.Name = core.GroupID{ID: id(100 + i)}, core.QueueID{ID: id(130 + i)}, string('A'+rune(i))
			b.ok(metadata.Create(t.Context(), b.meta, metadata.Groups, metadata.GroupKey(g.Queue, g.Spec.Name), g))
			for j := range byte(2) {
				e := core.Extent{ID: core.ExtentID{ID: id(160 + 2*i + j)}, Queue: g.DLQ}
				b.ok(metadata.Write(t.Context(), b.meta, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), metadata.ExtentRecord{Extent: e}, time.Now(), 0, metadata.One))
				b.ok(metadata.Create(t.Context(), b.meta, metadata.Seals, metadata.SealKey(e.ID), metadata.SealRecord{Extent: e, State: core.ExtentSealing, L: 10_000}))
			}
		}
		r := b.runner(b.meta)
		defer b.run(r)()
		for i := range byte(atOnce) {
			_, err := r.Start(t.Context(), Order{ID: id(200 + i), Kind: metadata.OperationMerge, Queue: b.group.Queue, Group: string('A' + rune(i)), Object: core.QueueID{ID: id(130 + i)}, Rate: 1, Who: "me"})
			b.ok(err)
		}
		time.Sleep(10 * time.Second)
		_, err := r.Start(t.Context(), b.order(50, metadata.OperationPurge))
		b.ok(err)
		time.Sleep(time.Minute)
		if o, err := metadata.FindOperation(t.Context(), b.meta, id(50)); err != nil || !o.Ended() {
			t.Errorf("after a minute the purge is %s, %v: it waits for others that wait", o.State, err)
		}
	})
}
