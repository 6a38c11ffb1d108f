package cluster

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata"
)

// TestCluster_HungStorePilesNothingUp holds a store that a seal needs.
func TestCluster_HungStorePilesNothingUp(t *testing.T) {
	lonelyBubble(t, Options{}, core.QueueSpec{Path: queue}, func(w *world) {
		w.publish("a")
		release := w.Hold(Store(0))
		defer release()
		w.Crash(Input)
		w.Up(Input)
		sleep(time.Minute)
		before := runtime.NumGoroutine()
		more := underrace.Of(5*time.Minute, 20*time.Minute)
		sleep(more)
		if after := runtime.NumGoroutine(); after > before+20 {
			t.Errorf("%d goroutines after a minute, %d after %s more", before, after, more)
		}
		release()
		w.eventually("the extent is sealed", 30*time.Second, func() bool { return w.extents(queue)[core.ExtentSealed] == 1 })
	})
}

// TestCluster_StartedGroupKeepsItsStart asks for the start of a group again, as a caller that got no answer does.
func TestCluster_StartedGroupKeepsItsStart(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.publish("before")
		w.group("g", func(g *core.GroupSpec) { g.Start = core.Start{Mode: core.StartLatest} })
		w.publish("after")
		q, err := w.Client.Admin().GetQueue(w.t.Context(), queue)
		w.ok(err)
		p := w.peers()
		defer p.Close()
		w.Crash(Output)
		g, err := w.Client.Admin().GetGroup(w.t.Context(), queue, "g")
		w.ok(err)
		_, err = p.Controller(w.hosts[Controller].addr).StartGroup(w.t.Context(), connect.NewRequest(&pb.StartGroupRequest{Queue: q.ID.ID[:], Name: "g", Group: g.ID.ID[:]}))
		w.ok(err)
		w.Up(Output)
		con := w.consumer("g")
		w.ok(w.next(con, "after", 1).Ack())
		w.close(con)
	})
}

// TestCluster_OneBadQueueStopsNoOther makes the groups of a queue unreadable.
func TestCluster_OneBadQueueStopsNoOther(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		w.publish("a")
		w.ok(w.next(con, "a", 1).Ack())
		bad, err := w.Client.Admin().GetQueue(w.t.Context(), queue)
		w.ok(err)
		w.OnMeta(Controller, func(_ context.Context, op Op) error {
			if op.Table == metadata.Groups.Name && op.Key.Partition == bad.ID.String() {
				return core.Errorf(core.CodeCorrupt, "injected: a row is damaged")
			}
			return nil
		})
		const other = "/t/other"
		_, err = w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: other})
		w.ok(err)
		_, err = w.Client.Admin().CreateGroup(w.t.Context(), core.GroupSpec{Queue: other, Name: "g", Start: core.Start{Mode: core.StartEarliest}})
		w.ok(err)
		p, err := w.Client.Publisher(w.t.Context(), other)
		w.ok(err)
		_, err = p.Publish(w.t.Context(), client.Message{Body: []byte("b")})
		w.ok(err)
		second, err := w.Client.Consumer(w.t.Context(), other, "g")
		w.ok(err)
		w.ok(w.next(second, "b", 1).Ack())
		w.publish("c") // the bad one's shares stay where they were
		w.ok(w.next(con, "c", 1).Ack())
		w.ok(p.Close(w.t.Context()))
		w.close(second)
		w.close(con)
	})
}

// TestCluster_ControllerThatRestartsIsBelieved restarts it alone after many changes: hosts ignore lists older than what
// they have.
func TestCluster_ControllerThatRestartsIsBelieved(t *testing.T) {
	bubble(t, Options{Input: rollAt(100)}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		for i := range 20 {
			w.publish(numbers(5*i+1, 5*i+5)...)
		}
		w.collect(con, 100)
		w.Restart(Controller)
		w.publish("b")
		began := time.Now()
		w.ok(w.next(con, "b", 1).Ack())
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("a message to a new extent came after %s", took)
		}
		w.close(con)
	})
}

// TestCluster_ConsumedSharesLeaveNoRows counts what a consumed extent leaves in the metadata.
func TestCluster_ConsumedSharesLeaveNoRows(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		w.publish("a")
		w.ok(w.next(con, "a", 1).Ack())
		g, err := w.Client.Admin().GetGroup(w.t.Context(), queue, "g")
		w.ok(err)
		var extent core.ExtentID
		for e, err := range w.Client.Admin().ListExtents(w.t.Context(), queue) {
			w.ok(err)
			extent = e.Extent
		}
		sleep(2 * time.Second)
		checkpoints := metadata.CheckpointPartition(g.ID, extent)
		if n := w.rows(metadata.Checkpoints, checkpoints); n != 1 {
			t.Errorf("%d checkpoints of an open extent, want one", n)
		}
		var failed atomic.Bool // the first removal has
		w.OnMeta(Output, func(_ context.Context, op Op) error {
			if op.Name == "Remove" && op.Table == metadata.Checkpoints.Name && !failed.Swap(true) {
				return errInjected
			}
			return nil
		})
		sleep(80 * time.Second)
		if n := w.rows(metadata.Checkpoints, checkpoints); n != 0 || !failed.Load() {
			t.Errorf("%d checkpoints of a consumed extent, want none", n)
		}
		if n := w.rows(metadata.Dones, g.ID.String()); n != 1 {
			t.Errorf("%d done rows, want one", n)
		}
		if n := w.rows(metadata.Assignments, g.ID.String()); n != 0 {
			t.Errorf("%d assignments of a consumed extent, want none", n)
		}
		w.close(con)
	})
}

// TestCluster_DamagedGroupAfterARestart has a row that does not decode when the controller starts.
func TestCluster_DamagedGroupAfterARestart(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		const other = "/t/other"
		bad, err := w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: other})
		w.ok(err)
		p, err := w.Client.Publisher(w.t.Context(), other)
		w.ok(err)
		_, err = p.Publish(w.t.Context(), client.Message{Body: []byte("x")}) // so that it has an extent
		w.ok(err)
		w.ok(p.Close(w.t.Context()))
		w.ok(w.Meta.Insert(w.t.Context(), metadata.Groups, metadata.GroupKey(bad.ID, "damaged"), []byte("garbage")))
		w.Crash(Controller)
		w.Up(Controller)
		w.group("g", nil)
		w.publish("a")
		con := w.consumer("g")
		w.ok(w.next(con, "a", 1).Ack())
		w.close(con)
	})
}

// TestCluster_ControllerWhoseClockWentBack starts it anew with lists that look older than what hosts have.
func TestCluster_ControllerWhoseClockWentBack(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		w.publish("a")
		w.ok(w.next(con, "a", 1).Ack())
		w.Crash(Controller)
		w.hosts[Controller].skew.Store(-int64(time.Hour))
		w.Crash(Input) // so that "b" needs a new extent
		w.Up(Input, Controller)
		w.publish("b")
		w.ok(w.next(con, "b", 1).Ack())
		w.close(con)
	})
}
