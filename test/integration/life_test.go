package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

func TestRecreatedQueueIsFresh(t *testing.T) {
	crashing(t, func(w *world, crash func()) {
		w.group("g", nil)
		w.publish(numbers(1, 50)...)
		old := w.consumer("g")
		w.settle(w.take(old, process.Patience).Ack())
		w.settle(w.take(old, process.Patience).Reject("dead"))
		w.letters("g", 1)
		if err := w.client.Admin().DeleteQueue(w.t.Context(), queue); err != nil {
			w.t.Fatal(err)
		}
		if _, err := w.client.Consumer(w.t.Context(), queue, "g"); !errors.Is(err, client.ErrNotFound) {
			w.t.Errorf("a consumer of a deleted queue: %v, want not found", err)
		}
		if _, err := w.client.Publisher(w.t.Context(), queue); !errors.Is(err, client.ErrNotFound) {
			w.t.Errorf("a publisher of a deleted queue: %v, want not found", err)
		}
		crash()
		w.create(queue)
		w.group("g", nil)
		if n := len(process.Decode[letter](w.t, w.server.Must("", "dlq", "list", queue, "g", "-o", "json"))); n != 0 {
			w.t.Errorf("%d dead letters of the queue that was there before", n)
		}
		w.publish("new")
		w.gets("g", []string{"new"})
	})
}

func TestRecreatedGroupIsFresh(t *testing.T) {
	const n = 20
	crashing(t, func(w *world, crash func()) {
		w.group("g", nil)
		w.publish(numbers(1, n)...)
		old := w.consumer("g")
		w.bodies(old, n/2)
		w.settle(w.take(old, process.Patience).Reject("dead"))
		w.letters("g", 1)
		if err := w.client.Admin().DeleteGroup(w.t.Context(), queue, "g"); err != nil {
			w.t.Fatal(err)
		}
		ended := false
		for _, err := range old.Deliveries(w.t.Context()) {
			if err != nil {
				ended = errors.Is(err, client.ErrNotFound)
				if !ended {
					w.t.Errorf("the consumer of a deleted group: %v, want not found", err)
				}
				break
			}
		}
		if !ended {
			w.t.Error("the consumer of a deleted group goes on")
		}
		crash()
		w.group("g", nil)
		w.gets("g", numbers(1, n))
		if l := process.Decode[letter](w.t, w.server.Must("", "dlq", "list", queue, "g", "-o", "json")); len(l) != 0 {
			w.t.Errorf("dead letters of the group that was there before: %+v", l)
		}
	})
}

// TestUpdateReachesRunningGroup changes the lock timeout and the deliveries of a group that has a consumer.
func TestUpdateReachesRunningGroup(t *testing.T) {
	w := newWorld(t)
	w.group("g", func(g *core.GroupSpec) { g.Breaker = core.BreakerOff }) // lock 60 s, 10 deliveries; its last attempt waits for nothing
	con := w.consumer("g")
	w.publish("warm")
	w.settle(w.next(con, "warm", 1).Ack())
	w.server.Must("", "update", "group", queue, "g", "--lock-timeout", "1s", "--max-deliveries", "2")
	process.Eventually(t, "the group's host knows", func() bool { // and tells who joins
		c := w.consumer("g")
		closeConsumer(c)
		return c.LockTimeout() == time.Second
	})
	w.publish("a")
	start := time.Now()
	w.next(con, "a", 1)
	w.next(con, "a", 2)
	if took := time.Since(start); took >= time.Minute {
		t.Errorf("the lock ended after %s as before, want 1 s", took)
	}
	if l := w.letters("g", 1)[0]; l.Attempts != 2 || l.Reason != "lock_timeout" {
		t.Errorf("dead letter %+v, want 2 attempts", l)
	}
	w.server.Must("", "update", "group", queue, "g", "--status", "disabled")
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	for _, err := range con.Deliveries(ctx) {
		if !errors.Is(err, client.ErrDisabled) {
			t.Errorf("the consumer of a disabled group: %v, want disabled", err)
		}
		break
	}
	if ctx.Err() != nil {
		t.Error("the consumer of a disabled group was not told")
	}
	w.publish("b")
	w.server.Must("", "update", "group", queue, "g", "--status", "enabled")
	w.settle(w.next(con, "b", 1).Ack())
}
