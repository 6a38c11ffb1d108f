package cluster

import (
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// TestDLQ_CopiesFollowTheQueue loses one of two stores for good. After an update to fewer copies, dead letters and
// parked messages work again, in groups of the queue and of its dead letter queues.
func TestDLQ_CopiesFollowTheQueue(t *testing.T) {
	bubbleOf(t, Options{Stores: 2}, core.QueueSpec{Path: queue, Replicas: 2, MinReplicas: 2}, func(w *world) {
		w.group("g", patient)
		dlq := core.DLQPath(queue, "g")
		_, err := w.Client.Admin().CreateGroup(w.t.Context(), core.GroupSpec{Queue: dlq, Name: "sift", Start: core.Start{Mode: core.StartEarliest}, Breaker: core.BreakerOff})
		w.ok(err)
		w.publish("before")
		con := w.consumer("g")
		w.ok(w.next(con, "before", 1).Nack(client.After(10 * time.Minute)))
		w.eventually("it is parked", time.Minute, func() bool { return len(w.parked("g")) == 1 })
		w.Crash(Store(1))
		_, err = w.Client.Admin().UpdateQueue(w.t.Context(), core.QueueSpec{Path: queue, Replicas: 1, MinReplicas: 1}, "replicas", "min_replicas")
		w.ok(err)
		for _, path := range []string{dlq, core.RetryPath(queue, "g")} {
			if q, err := w.Client.Admin().GetQueue(w.t.Context(), path); err != nil || q.Spec.Replicas != 1 || q.Spec.MinReplicas != 1 {
				t.Errorf("queue %s has %d copies, at least %d (%v)", path, q.Spec.Replicas, q.Spec.MinReplicas, err)
			}
		}
		sleep(10 * time.Second)
		w.publish("dead", "parked")
		w.ok(w.take(con, time.Minute).Reject("bad"))
		w.ok(w.take(con, time.Minute).Nack(client.After(20 * time.Minute)))
		w.eventually("both are where they belong", 2*time.Minute, func() bool { return w.places("g") == "0 0 0 2 1" })
		w.close(con)
	})
}
