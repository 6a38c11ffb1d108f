package operations

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestOperation_BesideADamagedRow: the row of one operation cannot be decoded. All others start, run, are looked up and
// are forgotten, also those whose rows come after it, and its own object says why nothing can be started there.
func TestOperation_BesideADamagedRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 10, 10)
		defer b.meta.Close()
		damaged := core.QueueID{ID: id(0)} // before all others
		for _, key := range []metadata.Key{metadata.OperationKey(damaged.ID), metadata.EndedOperationKey(id(0))} {
			b.ok(b.meta.Insert(t.Context(), metadata.Operations, key, []byte(`{"id":`)))
		}
		r := b.runner(b.meta)
		stop := b.run(r)
		_, err := r.Start(t.Context(), b.order(50, metadata.OperationMerge))
		b.ok(err)
		if o := b.wait(50); o.State != metadata.OperationDone || o.Done != 20 {
			t.Errorf("it is %+v", o)
		}
		if _, err := metadata.FindOperation(t.Context(), b.meta, id(51)); core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("one that may be in the damaged row: %v, want %s", err, core.CodeCorrupt)
		}
		b.ok(metadata.Create(t.Context(), b.meta, metadata.Queues, metadata.QueueKey(damaged), metadata.QueueRecord{ID: damaged, Spec: core.QueueSpec{Path: "/t/damaged", Status: core.StatusEnabled}}))
		o := Order{ID: id(52), Kind: metadata.OperationPurge, Queue: damaged, Object: damaged, Who: "me"}
		if _, err := r.Start(t.Context(), o); core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("on the object of the damaged row: %v, want %s", err, core.CodeCorrupt)
		}
		stop()
		r.Now = func() time.Time { return time.Now().Add(keptFor + time.Minute) }
		if err := r.sweep(t.Context()); core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("the sweep says %v of the damaged row", err)
		}
		if _, err := b.meta.Get(t.Context(), metadata.Operations, metadata.OperationKey(b.group.DLQ.ID), metadata.Serial); core.CodeOf(err) != core.CodeNotFound {
			t.Errorf("the row of the operation that ended long ago: %v", err)
		}
	})
}
