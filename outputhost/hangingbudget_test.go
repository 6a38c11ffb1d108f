package outputhost

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestSaver_HangingClaimsTakeNoBudget: the claims of more groups hang than the budget of rows has, and pulls wait for
// them. The acks of another group are saved every second or two all the same: few of those rows are written.
func TestSaver_HangingClaimsTakeNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		var list []*pb.Assignment
		for range 80 {
			r, a := b.group()
			_, err := metadata.Change(t.Context(), b.meta, metadata.Groups, metadata.GroupKey(r.Queue, r.Spec.Name), func(r *metadata.GroupRecord) error {
				r.Spec.Delivery = core.AtMostOnce
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, a)
		}
		_, well := b.group()
		list = append(list, well)
		times := &rowTimes{Store: b.meta, byRow: make(map[string][]time.Time)}
		b.deps.Meta = &hangingClaims{times, core.GroupID{ID: core.ID(well.Group)}}
		b.cfg.CheckpointRows = 60
		if err := b.give(1, list...); err != nil {
			t.Fatal(err)
		}
		g, s := b.taken(well, 1000)
		ctx, cancel := context.WithCancel(t.Context())
		for _, x := range b.groupList() {
			if x == g {
				continue
			}
			for _, s := range x.mu.shares {
				b.offer(x, s, recordOf(t, "1"), recordOf(t, "2"))
			}
			go func() { _, _ = x.pull(ctx, 1, maxPullWait) }()
		}
		done := make(chan struct{})
		go func() { defer close(done); b.saver.run(ctx) }()
		defer func() { cancel(); <-done; synctest.Wait() }()
		began := time.Time{}
		for i := range core.Seq(110) {
			if i == 80 {
				began = time.Now()
			}
			g.mu.Lock()
			s.rules.Ack(i+1, 1, 1, time.Now(), nil)
			g.mu.Unlock()
			g.pump()
			time.Sleep(500 * time.Millisecond)
		}
		times.mu.Lock()
		key := metadata.CheckpointPartition(g.id, s.extent.ID)
		for k := range times.byRow {
			if k != key {
				delete(times.byRow, k)
			}
		}
		times.mu.Unlock()
		if most := times.longest(began, time.Now()); most > 2*b.cfg.CheckpointEvery {
			t.Errorf("acks were not saved for %s", most)
		}
	})
}
