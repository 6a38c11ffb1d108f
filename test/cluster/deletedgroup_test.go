package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost"
)

// groupRows counts the rows that the metadata has of a group: hints, done rows, assignments, checkpoints and claims.
func (w *world) groupRows(g core.GroupID) (n int) {
	w.t.Helper()
	count := func(t metadata.Table, partition string) {
		rows, _, err := w.Meta.List(w.t.Context(), t, partition, "", 1000, metadata.One)
		w.ok(err)
		n += len(rows)
	}
	if _, err := w.Meta.Get(w.t.Context(), metadata.Work, metadata.DeletedGroupKey(g), metadata.One); err == nil {
		n++
	}
	count(metadata.Dones, g.String())
	count(metadata.Assignments, g.String())
	for row, err := range metadata.All[metadata.SealRecord](w.t.Context(), w.Meta, metadata.Seals, metadata.PartitionID, metadata.One) {
		w.ok(err)
		count(metadata.Checkpoints, metadata.CheckpointPartition(g, row.Value.Extent.ID))
		count(metadata.Claims, metadata.CheckpointPartition(g, row.Value.Extent.ID))
	}
	return n
}

// use has a group ack, park, reject and keep some of what there is, and answers its id.
func (w *world) use(name string) core.GroupID {
	w.t.Helper()
	w.group(name, patient)
	con := w.consumer(name)
	for i := range 40 {
		d := w.take(con, time.Minute)
		if d == nil {
			w.t.Fatalf("message %d does not come", i)
		}
		switch i % 4 {
		case 0, 1:
			w.ok(d.Ack())
		case 2:
			w.ok(d.Nack(client.After(3 * time.Minute)))
		case 3:
			w.ok(d.Reject("no"))
		}
	}
	sleep(3 * time.Second)
	w.close(con)
	g, err := w.Client.Admin().GetGroup(w.t.Context(), queue, name)
	w.ok(err)
	if w.groupRows(g.ID) == 0 {
		w.t.Fatalf("group %s has no rows", name)
	}
	return g.ID
}

// TestDeletedGroup_LeavesNoRows deletes groups, one of whose names is used again, and in the end their queue; hosts
// crash meanwhile.
func TestDeletedGroup_LeavesNoRows(t *testing.T) {
	bubble(t, Options{Stores: 2, Outputs: 2, Input: rollAt(1_000), Output: func(c *outputhost.Config) { c.RefreshEvery = time.Second }}, func(w *world) {
		w.publish(numbers(1, 100)...)
		a, b, other := w.use("a"), w.use("b"), w.use("other")
		admin := w.Client.Admin()
		w.ok(admin.DeleteGroup(w.t.Context(), queue, "a"))
		w.ok(admin.DeleteGroup(w.t.Context(), queue, "b"))
		again := w.use("a")
		sleep(5 * time.Minute)
		w.Crash(Controller, OutputOf(0))
		w.Up(Controller, OutputOf(0))
		w.eventually("nothing is left of the deleted groups", 15*time.Minute, func() bool { return w.groupRows(a)+w.groupRows(b) == 0 })
		if w.groupRows(again) == 0 || w.groupRows(other) == 0 {
			t.Error("rows of groups that are there were removed")
		}
		con := w.consumer("other")
		w.publish("after")
		got := w.collect(con, 91)
		if got["after"] != 1 {
			t.Errorf("the other group got %d messages, not the one that was published last", len(got))
		}
		w.close(con)

		w.ok(admin.DeleteGroup(w.t.Context(), queue, "a"))
		last := w.use("a")
		w.ok(admin.DeleteQueue(w.t.Context(), queue))
		sleep(time.Minute)
		w.Crash(Controller)
		w.Up(Controller)
		w.eventually("nothing is left of any group", 15*time.Minute, func() bool { return w.groupRows(again)+w.groupRows(other)+w.groupRows(last) == 0 })
	})
}

// TestCreateGroup_DeletedMeanwhile deletes a group between its row and its dead letter queue: nothing of it may stay.
func TestCreateGroup_DeletedMeanwhile(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		path := core.DLQPath(queue, "g")
		var seen atomic.Int64
		held, release := make(chan struct{}), make(chan struct{})
		w.OnMeta(Frontend, func(_ context.Context, op Op) error {
			if op.Name == "Insert" && op.Table == metadata.Names.Name && op.Key.Row == path && seen.Add(1) == 1 {
				close(held)
				<-release
			}
			return nil
		})
		made := make(chan error, 1)
		go func() {
			_, err := w.Client.Admin().CreateGroup(w.t.Context(), core.GroupSpec{Queue: queue, Name: "g"})
			made <- err
		}()
		<-held
		w.ok(w.Client.Admin().DeleteGroup(w.t.Context(), queue, "g"))
		close(release)
		if err := <-made; core.CodeOf(err) != core.CodeConflict {
			t.Errorf("the group was deleted while it was made: %v", err)
		}
		sleep(time.Minute)
		if _, err := w.Client.Admin().GetQueue(w.t.Context(), path); core.CodeOf(err) != core.CodeNotFound {
			t.Errorf("the dead letter queue of a group that is not there: %v", err)
		}
	})
}
