package controller

import (
	"context"
	"testing"

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
		r.meta = staleSeals{r.meta, map[metadata.Key]metadata.Row{before.Key: before}}
		r.ctl = r.startController(nil)
		got, err := r.seal(e, 3)
		r.ok(err)
		if got.L != want.L || len(got.Holders) != len(want.Holders) {
			t.Errorf("asked again, the end is %d on %v, want %d on %v", got.L, got.Holders, want.L, want.Holders)
		}
	})
}
