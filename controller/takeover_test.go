package controller

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// TestTakeOver_KnowsWhatTheOtherOneTold: extents were purged, and others lost messages to a selection, at a controller
// that ends soon after. The next controller takes nothing of that back, though it cannot read all extents again.
func TestTakeOver_KnowsWhatTheOtherOneTold(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness, both [2]*running) {
		queue, o := r.queue(1, 1), r.outputs[0]
		for of(both, queue) != 0 {
			queue = r.queue(1, 1)
		}
		r.group(queue, "g")
		purged, thinned := r.sealed(queue, 5), r.sealed(queue, 5)
		r.eventually("the host has both, and the other controller knows both", time.Minute, func() bool {
			_, one := both[1].extents.Get(purged.ID)
			_, other := both[1].extents.Get(thinned.ID)
			return one && other && len(o.shares()) == 2
		})
		told := func() bool {
			all := o.shares()
			return len(all) == 1 && all[thinned.ID].GetRemoved() == 2
		}
		r.change(purged, func(row *metadata.SealRecord) { row.Home = core.Home{Kind: core.HomePurged} })
		r.change(thinned, func(row *metadata.SealRecord) { row.RemovedCount = 2 })
		for _, e := range []core.Extent{purged, thinned} {
			deadLetters{both[0].Host}.Rehomed(r.row(e))
		}
		r.eventually("the host has heard", 5*time.Second, told)
		if e, _ := both[1].extents.Get(purged.ID); e.Home.Kind != core.HomeOwn {
			t.Fatal("the other controller has heard of it, too")
		}
		r.cut.hints.Store(true)
		both[0].end()
		r.ctl = both[1]
		r.eventually("the other one has taken over", 5*time.Second, func() bool { return both[1].shares.looked(queue) })
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); r.sleep(time.Millisecond) {
			if !told() {
				t.Fatalf("the host is given %v", o.assignments())
			}
		}
	})
}

// TestTakeOver_TellsNothingOfUnknownExtents: a controller takes over a queue that it knows no extents of, since another
// one made them a moment ago. It tells output hosts nothing of the queue, and so no empty list, before it has read the
// extents again.
func TestTakeOver_TellsNothingOfUnknownExtents(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness, both [2]*running) {
		r.sleep(time.Minute)
		r.cut.hints.Store(true)
		queue, o := r.queue(1, 1), r.outputs[0]
		for of(both, queue) != 0 {
			queue = r.queue(1, 1)
		}
		r.group(queue, "g")
		_, err := both[0].createExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		r.eventually("the host has the share", time.Minute, func() bool { return len(o.shares()) == 1 })
		both[0].end()
		r.ctl = both[1]
		r.eventually("the other one is responsible", 10*time.Second, func() bool { return both[1].duties.Responsible(queue.ID) })
		lists := func() []*pb.AssignmentList {
			resp, err := (&service{both[1].Host}).GetAssignments(r.t.Context(), connect.NewRequest(&pb.GetAssignmentsRequest{
				Owner: string(o.id), Run: o.run.ID[:], Known: []*pb.QueueVersion{{Queue: queue.ID[:]}},
			}))
			r.ok(err)
			return resp.Msg.Lists
		}
		for range 100 {
			if l := lists(); both[1].extents.Has(queue) || len(l) > 0 {
				t.Fatalf("it knows the extent, %v, or tells of the queue: %v", both[1].extents.Has(queue), l)
			}
			r.sleep(50 * time.Millisecond)
		}
		r.cut.hints.Store(false)
		r.eventually("it tells of the share", 2*time.Second, func() bool { l := lists(); return len(l) == 1 && len(l[0].Assignments) == 1 })
	})
}

// TestTakeOver_HoldersThatAreGone: a server with all roles is killed twice in a few seconds. Each time its shares have
// an owner at once: who had them before is gone.
func TestTakeOver_HoldersThatAreGone(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		queue, o := r.queue(1, 1), r.outputs[0]
		r.group(queue, "g")
		r.sealed(queue, 5)
		r.eventually("the host has the share", time.Minute, func() bool { return len(o.shares()) == 1 })
		for range 2 {
			r.ctl.end()
			r.sleep(time.Second) // runs are ordered by when they began
			o.with(func() { o.run, o.lists = newRun(), nil })
			r.join(membership.Host{ID: o.id, Roles: []string{"outputhost"}, Address: string(o.id) + ":1", Run: o.run})
			r.ctl = r.startController(nil)
			r.eventually("the next run has the share", 2*time.Second, func() bool { return len(o.shares()) == 1 })
		}
	})
}
