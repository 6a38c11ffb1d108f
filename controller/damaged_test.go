package controller

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// forceSeal asks for the end of an extent as an operator does.
func (r *harness) forceSeal(e core.Extent) (*pb.SealExtentResponse, error) {
	resp, err := (&service{r.ctl.Host}).SealExtent(r.t.Context(), connect.NewRequest(&pb.SealExtentRequest{Extent: convert.ExtentToProto(e), Reason: "test", Force: true}))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	return resp.Msg, nil
}

// TestSeal_DamagedOnlyReplica: the only replica of the head of a cp queue is damaged. The extent ends where it ends,
// the queue goes on, and an alarm says that the extent cannot be read. A replica that turns out to be whole is read
// again.
func TestSeal_DamagedOnlyReplica(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		queue := core.QueueID{ID: core.NewID(time.Now())}
		spec := core.QueueSpec{Path: "/t/a", Consistency: core.CP}.WithDefaults(1, 1)
		r.ok(metadata.Create(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(queue), metadata.QueueRecord{ID: queue, Spec: spec}))
		e := r.extent(queue, 5)
		r.stores[0].edit(e.ID, func(x *fakeReplica) { x.wrong = true })
		if _, err := r.seal(e, 3); err != nil {
			t.Fatalf("the end of an extent whose only replica is damaged: %v", err)
		}
		if row := r.row(e); row.L != 5 || len(row.Holders) != 0 || row.Forced || !row.Unacked {
			t.Errorf("row %+v, want the end 5, held by nobody, without a force", row)
		}
		next, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
		if err != nil || next.Chain != 2 {
			t.Errorf("the next extent of the queue: %+v, %v", next, err)
		}
		r.eventually("the loss is reported", time.Minute, func() bool { return r.lost() == 1 })
		if below := r.value(r.ctl.metrics.below); below != 1 {
			t.Errorf("%v extents below the minimum", below)
		}
		r.stores[0].edit(e.ID, func(x *fakeReplica) { x.wrong = false })
		r.eventually("it is a holder", 2*time.Minute, func() bool { return len(r.row(e).Holders) == 1 })
		r.whole(e, 5, 1)
		r.eventually("the loss is not reported any more", time.Minute, func() bool { return r.lost() == 0 })
	})
}

// TestSeal_DamagedReplicas: all replicas of three are damaged. Only an operator's force ends the extent.
func TestSeal_DamagedReplicas(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: seldom}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		for _, s := range r.replicas(e) {
			s.edit(e.ID, func(x *fakeReplica) { x.wrong = true })
		}
		if _, err := r.seal(e, 3); err == nil {
			t.Fatal("sealed without a force")
		}
		r.sleep(10 * time.Minute)
		if n := strings.Count(r.log.text(), "seal alarm"); n != 1 {
			t.Errorf("the log has the alarm of one extent %d times in ten minutes, want once", n)
		}
		if got, err := r.forceSeal(e); err != nil || got.L != 5 || len(got.Holders) != 0 {
			t.Fatalf("forced: %v, %v", got, err)
		}
		if row := r.row(e); !row.Forced || row.State != core.ExtentSealed {
			t.Errorf("row %+v, want that it says that it was forced", row)
		}
		r.eventually("the loss is reported", time.Minute, func() bool { return r.lost() == 1 })
	})
}
