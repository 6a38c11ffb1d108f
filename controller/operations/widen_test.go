package operations

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/google/go-cmp/cmp"
)

// TestOperation_PurgeOfAQueue takes what is the queue's, and what its groups alone read: parked messages, of an extent
// that has no end yet, too, and dead letters that were merged. Dead letters stay, and what groups of other queues read.
// It is stopped after each second, and asked for again.
func TestOperation_PurgeOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 5)
		defer b.meta.Close()
		queue, retry := b.group.Queue, core.QueueID{ID: id(4)}
		_, err := metadata.Change(t.Context(), b.meta, metadata.Groups, metadata.GroupKey(queue, "g"), func(g *metadata.GroupRecord) error {
			g.Retry = retry
			return nil
		})
		b.ok(err)
		b.ok(metadata.Create(t.Context(), b.meta, metadata.Queues, metadata.QueueKey(queue), metadata.QueueRecord{ID: queue, Spec: core.QueueSpec{Path: "/t/q", Status: core.StatusEnabled}}))
		mine, another := core.MergedInto(queue, b.group.ID), core.MergedInto(core.QueueID{ID: id(9)}, core.GroupID{ID: id(8)})
		put := func(n byte, of core.QueueID, l core.Seq, first, now core.Home, state core.ExtentState) {
			e := core.Extent{ID: core.ExtentID{ID: id(n)}, Queue: of}
			b.ok(metadata.Write(t.Context(), b.meta, metadata.Extents, metadata.ExtentKey(of, e.ID), metadata.ExtentRecord{Extent: e, Home: first}, time.Now(), 0, metadata.One))
			if l > 0 {
				b.ok(metadata.Create(t.Context(), b.meta, metadata.Seals, metadata.SealKey(e.ID), metadata.SealRecord{Extent: e, State: state, L: l, Home: now}))
			}
		}
		own := core.Home{}
		put(20, queue, 10, own, own, core.ExtentSealing)
		put(21, queue, 100, own, own, core.ExtentSealed)
		put(22, retry, 1_000, mine, mine, core.ExtentSealed)
		put(23, retry, 0, mine, own, "")
		put(24, retry, 10_000, mine, mine, core.ExtentRetired)
		put(25, b.group.DLQ, 100_000, own, mine, core.ExtentSealed)
		put(26, b.group.DLQ, 1_000_000, own, another, core.ExtentSealed)
		b.first = map[core.ExtentID]core.Home{{ID: id(23)}: mine}
		o := Order{ID: id(30), Kind: metadata.OperationPurge, Queue: queue, Object: queue, Who: "me"}
		_, err = b.runner(b.meta).Start(t.Context(), o)
		b.ok(err)
		var last metadata.OperationRecord
		for range 30 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second+50*time.Millisecond)
			r := b.runner(b.meta)
			r.Every = time.Second
			r.Run(ctx)
			cancel()
			if last, err = metadata.FindOperation(t.Context(), b.meta, o.ID); last.Ended() {
				break
			}
			b.ok(err)
		}
		if last.State != metadata.OperationDone || last.Done != 101_117 || last.Total != last.Done || last.Error != "" {
			t.Errorf("it ended as %+v", last)
		}
		want := map[string]core.Seq{"own": 5, "purged": 101_117, mine.String(): 10_000, another.String(): 1_000_000}
		if diff := cmp.Diff(want, b.homes()); diff != "" {
			t.Errorf("messages by home (-want +got):\n%s", diff)
		}
	})
}
