package operations

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestOperation_RunsWhereItsObjectIs: of two controllers only the one that is responsible for the object runs an
// operation and forgets old ones, whichever was asked. When the other one becomes responsible in the middle, it goes
// on.
func TestOperation_RunsWhereItsObjectIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 10, 10, 10, 10, 10, 10)
		defer b.meta.Close()
		var second atomic.Bool
		one, two := b.runner(b.meta), b.runner(b.meta)
		one.Self, two.Self = "one", "two"
		one.Responsible = func(key core.ID) bool { return key == b.group.DLQ.ID && !second.Load() }
		two.Responsible = func(key core.ID) bool { return key == b.group.DLQ.ID && second.Load() }
		stop := []func(){b.run(one), b.run(two)}
		o := b.order(50, metadata.OperationMerge)
		o.Rate = 5 // an extent every two seconds
		_, err := two.Start(t.Context(), o)
		b.ok(err)
		by := func(want core.HostID, least int) {
			t.Helper()
			row, err := metadata.FindOperation(t.Context(), b.meta, id(50))
			if b.ok(err); row.By != want || row.Moved < least {
				t.Errorf("%s has run it, up to extent %d; want %s, and %d", row.By, row.Moved, want, least)
			}
		}
		time.Sleep(6 * time.Second)
		by("one", 2)
		second.Store(true)
		two.Wake()
		time.Sleep(4 * time.Second)
		by("two", 4)
		if o := b.wait(50); o.State != metadata.OperationDone || o.Done != 60 {
			t.Errorf("it is %+v", o)
		}
		for i, r := range []*Runner{one, two} {
			stop[i]()
			r.Now = func() time.Time { return time.Now().Add(keptFor + time.Minute) }
		}
		b.ok(one.sweep(t.Context()))
		by("two", 6)
		b.ok(two.sweep(t.Context()))
		if _, err := metadata.FindOperation(t.Context(), b.meta, id(50)); core.CodeOf(err) != core.CodeNotFound {
			t.Errorf("the operation is still there: %v", err)
		}
	})
}

// TestOperation_WaitsForControllers: while it is not known who has heard of an operation, it is not done, and says so.
func TestOperation_WaitsForControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 5)
		defer b.meta.Close()
		b.ok(metadata.Create(t.Context(), b.meta, metadata.Queues, metadata.QueueKey(b.group.Queue), metadata.QueueRecord{ID: b.group.Queue, Spec: core.QueueSpec{Path: "/t/q", Status: core.StatusEnabled}}))
		r := b.runner(b.meta)
		defer b.run(r)()
		for n, o := range map[byte]Order{50: b.order(50, metadata.OperationMerge), 51: {ID: id(51), Kind: metadata.OperationPurge, Queue: b.group.Queue, Object: b.group.Queue, Who: "me"}} {
			b.mu.Lock()
			b.lost = 3
			b.mu.Unlock()
			_, err := r.Start(t.Context(), o)
			b.ok(err)
			time.Sleep(4 * time.Second)
			if o, err := metadata.FindOperation(t.Context(), b.meta, id(n)); err != nil || o.Ended() || o.Widened || !strings.Contains(o.Error, "no controller is responsible") {
				t.Errorf("it is %+v, %v", o, err)
			}
			if o := b.wait(n); o.State != metadata.OperationDone || o.Error != "" {
				t.Errorf("it is %+v", o)
			}
		}
	})
}
