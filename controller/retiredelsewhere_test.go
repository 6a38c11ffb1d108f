package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// retiredElsewhere retires a sealed extent as another controller does, up to the removal of its replicas.
func (r *harness) retiredElsewhere(e core.Extent) metadata.SealRecord {
	r.t.Helper()
	row, err := metadata.Change(r.t.Context(), r.meta, metadata.Seals, metadata.SealKey(e.ID), func(row *metadata.SealRecord) error {
		row.State, row.Version, row.Changed = core.ExtentRetired, row.Version+1, time.Now()
		return nil
	})
	r.ok(err)
	for _, s := range r.replicas(e) {
		s.with(func() {
			delete(s.replicas, e.ID)
			s.position++
			s.removed[e.ID] = removal{s.position, row.Version}
		})
	}
	return row
}

// TestDoubt_RetiredByAnotherController: the holders no longer have the extent, and nothing is wrong with that.
func TestDoubt_RetiredByAnotherController(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.sealed(r.queue(3, 2), 5)
		want := r.retiredElsewhere(e)
		r.sleep(time.Minute) // inventories come
		if got := r.row(e); got.Version != want.Version || len(got.Holders) != len(want.Holders) {
			t.Errorf("version %d with holders %v, want %d with %v", got.Version, got.Holders, want.Version, want.Holders)
		}
		if n := r.value(r.ctl.metrics.quarantined); n > 0 || strings.Contains(r.log.text(), "damaged") {
			t.Errorf("%v replicas are called damaged", n)
		}
		r.goes(e)
	})
}

// TestStart_RetiredByAnotherController: a group that begins before this controller knows of the retirement leaves no
// rows behind.
func TestStart_RetiredByAnotherController(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
		queue := r.queue(3, 2)
		e := r.sealed(queue, 5)
		r.retiredElsewhere(e)
		group := r.halfMade(queue, "g")
		r.ok(r.startGroup(r.ctl, queue, "g"))
		if n := rows(r, metadata.Dones, group.String()); n != 1 {
			t.Fatalf("%d done rows, want one: the group gets nothing of the extent", n)
		}
		r.goes(e)
		r.ctl.end()
		r.sleep(progress.DoneFor)
		r.ctl = r.startController(calm)
		if n := rows(r, metadata.Dones, group.String()); n > 0 {
			t.Errorf("%d done rows stay", n)
		}
	})
}
