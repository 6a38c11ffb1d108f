package controller

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// oldStray is a replica on the only store of an extent of that age, without any row.
func (r *harness) oldStray(queue core.QueueID, age time.Duration) core.Extent {
	r.t.Helper()
	e := core.Extent{
		ID: core.ExtentID{ID: core.NewID(time.Now().Add(-age))}, Queue: queue, Kind: core.KindLog,
		Durability: core.DurabilityFsync, Input: "in", InputRun: newRun(), Token: core.WriterToken{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"s0"},
	}
	r.stores[0].write(e, "a")
	return e
}

const day = 24 * time.Hour

// TestStrays_AnOldExtentWithoutRowsIsLeft: its seal row may have said that it was retired, and ended since. The store
// keeps what it has; nothing is registered, and a seal is refused. When the queue is deleted, the store removes it. A
// younger one is registered again.
func TestStrays_AnOldExtentWithoutRowsIsLeft(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, edit: calm}, func(r *harness) {
		queue := r.queue(1, 1)
		old, young := r.oldStray(queue, 46*day), r.oldStray(queue, 44*day)
		r.eventually("the younger one is registered again", 2*time.Hour, func() bool { return r.row(young).State == core.ExtentSealed })
		r.sleep(3 * time.Hour)
		if x := r.stores[0].has(old.ID); x == nil || x.fenced || r.row(old).State != "" {
			t.Errorf("replica %+v, row %+v of the old one; want it left as it is", x, r.row(old))
		}
		if _, known := r.ctl.extents.Get(old.ID); known {
			t.Error("the controller knows the old one")
		}
		if n := gaugeOf(t, r.ctl.metrics.old); n != 1 {
			t.Errorf("%v old ones are counted, want 1", n)
		}
		if n := gaugeOf(t, r.ctl.metrics.orphans); n != 0 {
			t.Errorf("%v orphans are counted, want none: an operator may delete those", n)
		}
		if _, err := r.seal(old, 1); core.CodeOf(err) != core.CodeConflict {
			t.Errorf("sealed the old one: %v", err)
		}
		if r.row(old).State != "" {
			t.Errorf("row %+v", r.row(old))
		}
		_, err := metadata.Change(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(queue), func(q *metadata.QueueRecord) error {
			q.Spec.Status = core.StatusDeleted
			return nil
		})
		r.ok(err)
		r.eventually("it is removed with its queue", 3*time.Hour, func() bool { return r.stores[0].has(old.ID) == nil })
	})
}

// TestStrays_AnOldExtentWithARowIsTakenIn: an extent that lives has its create row, however old it is.
func TestStrays_AnOldExtentWithARowIsTakenIn(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, edit: calm}, func(r *harness) {
		e := r.oldStray(r.queue(1, 1), 100*day)
		r.ok(metadata.Write(r.t.Context(), r.meta, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), metadata.ExtentRecord{Extent: e, Created: e.ID.Time()}, time.Now(), 0, metadata.Quorum))
		r.eventually("it is sealed", 2*time.Hour, func() bool { return r.row(e).State == core.ExtentSealed })
		r.whole(e, 1, 1)
	})
}

// TestLoad_OldHintsAloneAreLeftOut: the last hint of an extent that was retired long ago was not removed, and its seal
// row has ended.
func TestLoad_OldHintsAloneAreLeftOut(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, edit: calm}, func(r *harness) {
		queue := r.queue(1, 1)
		var extents []core.Extent
		for i, age := range []time.Duration{100 * day, 100 * day, time.Hour} {
			e := core.Extent{
				ID: core.ExtentID{ID: core.NewID(time.Now().Add(-age))}, Queue: queue, Kind: core.KindLog,
				Durability: core.DurabilityFsync, Input: "in", InputRun: newRun(), Token: core.WriterToken{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"s0"},
			}
			record := metadata.ExtentRecord{Extent: e, Created: e.ID.Time()}
			r.ok(metadata.Write(r.t.Context(), r.meta, metadata.Work, metadata.HintKey(metadata.HintLive, e.ID), record, time.Now(), 0, metadata.Quorum))
			if i > 0 {
				r.ok(metadata.Write(r.t.Context(), r.meta, metadata.Extents, metadata.ExtentKey(queue, e.ID), record, time.Now(), 0, metadata.Quorum))
			}
			extents = append(extents, e)
		}
		r.ctl.end()
		r.ctl = r.startController(nil)
		r.sleep(time.Minute)
		for i, e := range extents {
			if _, known := r.ctl.extents.Get(e.ID); known != (i > 0) {
				t.Errorf("extent %d is known: %v, want %v", i, known, i > 0)
			}
		}
	})
}

func gaugeOf(t *testing.T, g prometheus.Gauge) float64 {
	t.Helper()
	var m dto.Metric
	if err := g.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}
