package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// staleSeals is metadata of which a read of a seal row below Serial answers the row as it was before it had an end: a
// replica of the row missed the last change.
type staleSeals struct {
	metadata.Store
	before map[metadata.Key]metadata.Row
}

func (s staleSeals) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if row, ok := s.before[k]; ok && t == metadata.Seals && c != metadata.Serial {
		return row, nil
	}
	return s.Store.Get(ctx, t, k, c)
}

// A writer that asks again for the end of a sealed extent must not be told the end of a row that had none yet.
func TestSeal_AnswersNoStaleRow(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		want, err := r.seal(e, 3)
		r.ok(err)
		row := r.row(e)
		row.State, row.L, row.Holders = core.ExtentSealing, 0, nil
		before, err := metadata.NewRow(metadata.Seals, metadata.SealKey(e.ID), row, row.Changed)
		r.ok(err)
		r.ctl.end()
		r.use(staleSeals{r.meta, map[metadata.Key]metadata.Row{before.Key: before}})
		r.ctl = r.startController(nil)
		got, err := r.seal(e, 3)
		r.ok(err)
		if got.L != want.L || len(got.Holders) != len(want.Holders) {
			t.Errorf("asked again, the end is %d on %v, want %d on %v", got.L, got.Holders, want.L, want.Holders)
		}
	})
}

// blindGroups is metadata of which a list of groups at One has none: the replica that answers missed the rows.
type blindGroups struct {
	metadata.Store
	on atomic.Bool
}

func (s *blindGroups) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if t == metadata.Groups && c == metadata.One && s.on.Load() {
		return nil, false, nil
	}
	return s.Store.List(ctx, t, partition, after, limit, c)
}

// A list of groups that lacks one takes no shares from it. A group that is deleted loses them.
func TestAssign_ListWithoutAGroupTakesNoShares(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		meta := &blindGroups{Store: r.meta}
		r.ctl.end()
		r.use(meta)
		r.ctl = r.startController(nil)
		queue := r.queue(1, 1)
		r.group(queue, "g")
		r.extent(queue, 1)
		owned := func() int { return r.ctl.shares.Count() }
		r.eventually("the share has an owner", time.Minute, func() bool { return owned() == 1 })
		meta.on.Store(true)
		for range 60 {
			r.sleep(time.Second)
			if n := owned(); n != 1 {
				r.t.Fatalf("%d shares have an owner, want 1", n)
			}
		}
		_, err := metadata.Change(r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, "g"), func(g *metadata.GroupRecord) error {
			g.Spec.Status = core.StatusDeleted
			return nil
		})
		r.ok(err)
		r.eventually("the group that is deleted loses its share", 2*time.Minute, func() bool { return owned() == 0 })
	})
}
