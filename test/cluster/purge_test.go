package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata"
)

// TestCluster_PurgeTakesWhatIsStored purges a queue of which one group has read a part and another nothing, with the
// controller killed again and again meanwhile: neither gets any more of what was stored once it is done, both get all
// that is acknowledged afterwards, also a group that is made then, and the space comes back.
func TestCluster_PurgeTakesWhatIsStored(t *testing.T) {
	for _, consistency := range []core.Consistency{core.AP, core.CP} {
		t.Run(string(consistency), func(t *testing.T) {
			underrace.One(t, consistency == core.CP)
			bubble(t, Options{Stores: 2, Input: rollAt(500)}, func(w *world) {
				if consistency == core.CP {
					w.ok(w.Client.Admin().DeleteQueue(w.t.Context(), queue))
					_, err := w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: queue, Consistency: core.CP})
					w.ok(err)
				}
				w.group("some", nil)
				w.group("none", nil)
				some, none := w.consumer("some"), w.consumer("none", client.Prefetch(1))
				old := numbers(1, 60)
				for i := range 6 {
					w.publish(old[10*i : 10*i+10]...)
				}
				held := w.take(none, 10*time.Second)
				for range 10 {
					w.ok(w.take(some, 10*time.Second).Ack())
				}
				w.close(some)
				o := w.purgeUnderKills()
				if o.State != "done" || o.Done == 0 || o.Done != o.Total {
					t.Fatalf("the purge is %+v", o)
				}
				w.group("late", nil)
				late := w.consumer("late")
				some = w.consumer("some")
				_ = held.Ack() // of what is gone: whatever is answered, nothing hangs
				fresh := numbers(1001, 1020)
				w.publish(fresh...)
				for name, con := range map[string]*client.Consumer{"some": some, "none": none, "late": late} {
					got := make(map[string]int)
					for d := w.take(con, 10*time.Second); d != nil; d = w.take(con, 10*time.Second) {
						got[string(d.Body)]++
						w.ok(d.Ack())
					}
					before := 0
					for body := range got {
						if body < fresh[0] {
							before++
							delete(got, body)
						}
					}
					if before > 0 && name != "none" || before > 1 { // what was on its way to the consumer that stayed
						t.Errorf("group %s was given %d messages that were purged", name, before)
					}
					w.all(got, fresh, true)
					w.close(con)
				}
				sleep(4 * time.Minute) // retention goes in steps
				for e, err := range w.Client.Admin().ListExtents(w.t.Context(), queue) {
					w.ok(err)
					if e.ReadScope == "purged" {
						t.Errorf("extent %s still takes its space", e.Extent)
					}
				}
				w.audited("purge queue", queue)
			})
		})
	}
}

// purgeUnderKills purges the queue while the controller dies after each few homes that it has changed.
func (w *world) purgeUnderKills() client.Operation {
	w.t.Helper()
	var changes atomic.Int64
	count := func(_ context.Context, op Op) error {
		if op.Name == "Update" && op.Table == metadata.Seals.Name {
			changes.Add(1)
			sleep(200 * time.Millisecond)
		}
		return nil
	}
	w.OnMeta(Controller, count)
	o, err := w.Client.Admin().PurgeQueue(w.t.Context(), queue)
	w.ok(err)
	if _, err := w.Client.Admin().PurgeQueue(w.t.Context(), queue); !errors.Is(err, client.ErrConflict) {
		w.t.Errorf("a second purge: %v, want a conflict", err)
	}
	for range 3 {
		was := changes.Load()
		w.eventually("it goes on", time.Minute, func() bool {
			o, err := w.Client.Admin().GetOperation(w.t.Context(), o.ID)
			w.ok(err)
			return changes.Load() >= was+3 || o.Ended()
		})
		w.Crash(Controller)
		sleep(time.Second)
		w.Up(Controller)
		w.OnMeta(Controller, count)
	}
	return w.ended(o.ID)
}

// audited checks that somebody's order is recorded with its outcome.
func (w *world) audited(what, object string) {
	w.t.Helper()
	for r, err := range metadata.All[metadata.AuditRecord](w.t.Context(), w.Meta, metadata.Audit, metadata.AuditPartition(time.Now()), metadata.One) {
		w.ok(err)
		if r.Value.What == what && r.Value.Object == object && r.Value.Result == "ok" {
			return
		}
	}
	w.t.Errorf("the audit has no %s of %s", what, object)
}

// TestCluster_PurgeTakesWhatGroupsKeepElsewhere purges a queue of which one group has parked a message for later, and
// been given back a dead letter that it has not read, with the controller killed after each few homes: neither comes
// again, what is a dead letter still stays, and messages that are parked afterwards come back.
func TestCluster_PurgeTakesWhatGroupsKeepElsewhere(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.buried("g", "merged")
		merge, err := w.Client.Admin().MergeDeadLetters(w.t.Context(), queue, "g", 0)
		w.ok(err)
		w.ended(merge.ID)
		con := w.consumer("g", client.Prefetch(1))
		held := w.next(con, "merged", 1) // and stays in flight until its lock ends
		w.publish("parked", "dead")
		w.ok(w.take(con, time.Minute).Nack(client.After(10*time.Minute), client.Reason("later")))
		w.ok(w.take(con, time.Minute).Reject("bad"))
		w.close(con)
		w.eventually("each is in its place", time.Minute, func() bool { return w.places("g") == "0 1 0 1 1" })
		if o := w.purgeUnderKills(); o.State != "done" || o.Done != o.Total || o.Error != "" {
			t.Fatalf("the purge is %+v", o)
		}
		_ = held.Ack()
		w.eventually("the dead letter is left", 10*time.Second, func() bool { return w.places("g") == "0 0 0 0 1" })
		if n := len(w.parked("g")); n != 0 {
			t.Errorf("%d are listed as parked", n)
		}
		con = w.consumer("g")
		if d := w.take(con, 15*time.Minute); d != nil {
			t.Fatalf("%s came after the purge", d.Body)
		}
		w.publish("fresh")
		w.ok(w.next(con, "fresh", 1).Nack(client.After(time.Minute)))
		w.ok(w.next(con, "fresh", 2).Ack())
		w.close(con)
	})
}
