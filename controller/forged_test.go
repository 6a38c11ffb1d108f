package controller

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestSeal_ForgedExtent: a seal of an extent that was never made writes no row, so that depths and seeks do not wait
// for its end. An extent that the controller does not know, with one of its rows or on a store, is sealed.
func TestSeal_ForgedExtent(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		queue := r.queue(3, 2)
		forged := r.extent(queue, 5)
		forged.ID = core.ExtentID{ID: core.NewID(time.Now())}
		forged.Replicas, forged.Disks = []core.HostID{"nohost"}, nil
		_, err := r.seal(forged, 0)
		wants(t, "a seal of an extent that was never made", err, core.CodeNotFound, "")
		if row := r.row(forged); !row.Extent.ID.IsZero() {
			t.Errorf("the extent has the seal row %+v", row)
		}
		if _, err := r.rewindGroupOf(queue); err != nil {
			t.Errorf("a seek by time: %v", err)
		}
		for name, kept := range map[string]func(e core.Extent){
			"with its create row": func(e core.Extent) {
				r.unhint(e)
			},
			"with its hint": func(e core.Extent) {
				r.ok(r.meta.Remove(r.t.Context(), metadata.Extents, metadata.ExtentKey(queue, e.ID), time.Now().Add(time.Minute), metadata.Quorum))
			},
		} {
			e := r.extent(r.queue(3, 2), 5)
			kept(e)
			r.ctl.extents.Remove(e.ID)
			if _, err := r.seal(e, 5); err != nil {
				t.Errorf("a seal of an extent %s: %v", name, err)
			}
		}
	})
}

// rewindGroupOf sends a group of a queue to the present time.
func (r *harness) rewindGroupOf(queue core.QueueID) (uint64, error) {
	r.group(queue, "g")
	return r.rewindGroup(r.ctl, queue, "g", core.Start{Mode: core.StartTime, At: time.Now()}, 0)
}
