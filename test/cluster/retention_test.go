package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/controller"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost"
	"github.com/columbamq/columba/storehost/extentlog"
)

// keep sets the queue's retentions.
func (w *world) keep(consumed, unconsumed time.Duration) {
	w.t.Helper()
	_, err := w.Client.Admin().UpdateQueue(w.t.Context(), core.QueueSpec{Path: queue, ConsumedRetention: consumed, UnconsumedRetention: unconsumed}, "consumed_retention", "unconsumed_retention")
	w.ok(err)
}

// replicas is how many replicas the stores hold, of all extents.
func (w *world) replicas() (n int) {
	w.t.Helper()
	for _, id := range w.order {
		if h := w.hosts[id]; h.kind == "storehost" && h.process != nil {
			n += w.replicasOn(id)
		}
	}
	return n
}

// replicasOn is how many replicas a store holds that runs.
func (w *world) replicasOn(id core.HostID) (n int) {
	w.t.Helper()
	w.ok(w.hosts[id].process.log.List(func(extentlog.State) bool { n++; return true }))
	return n
}

// TestCluster_RetentionKeepsWhatAGroupNeeds has two groups, one of which is behind.
func TestCluster_RetentionKeepsWhatAGroupNeeds(t *testing.T) {
	bubble(t, Options{Stores: 2, Input: rollAt(200)}, func(w *world) {
		w.keep(2*time.Minute, 5*time.Hour)
		w.group("fast", nil)
		w.group("slow", nil)
		fast := w.consumer("fast")
		want := numbers(1, 100)
		for i := range 10 {
			w.publish(want[10*i : 10*i+10]...)
			sleep(time.Second) // so that each has an extent of its own
		}
		w.all(w.collect(fast, len(want)), want, true)
		sleep(10 * time.Minute) // long enough to be sealed, kept, marked and removed, had all consumed it
		before := w.extents(queue)[core.ExtentSealed]
		if before < 5 {
			t.Fatalf("%d extents are sealed, want some", before)
		}
		slow := w.consumer("slow")
		w.all(w.collect(slow, len(want)), want, true)
		w.eventually("all is removed", 20*time.Minute, func() bool { return w.replicas() == 0 })
		if states := w.extents(queue); len(states) > 0 {
			t.Errorf("extents are left: %v", states)
		}
		w.group("late", nil)
		late := w.consumer("late")
		w.publish("after")
		for _, c := range []*client.Consumer{fast, slow, late} {
			w.ok(w.next(c, "after", 1).Ack())
			w.close(c)
		}
	})
}

// TestCluster_RetentionEndsASlowRead takes an extent away from a group that has a part of it in its hands.
func TestCluster_RetentionEndsASlowRead(t *testing.T) {
	for _, how := range []string{"the list comes", "no list comes"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, Options{Stores: 2, Output: func(c *outputhost.Config) { c.ReadAhead = 64 << 10 }}, func(w *world) {
				w.keep(2*time.Minute, 5*time.Minute)
				w.group("g", nil)
				old := numbers(1, 300)
				for i := range old {
					old[i] += strings.Repeat(".", 4<<10)
				}
				w.publish(old...)
				sleep(2 * time.Minute) // sealed as idle
				con := w.consumer("g", client.Prefetch(1))
				first := w.next(con, old[0], 1)
				heal := func() {}
				if how == "no list comes" {
					heal = w.net.drop(path{w.hosts[Controller].addr, w.hosts[Output].addr})
				}
				w.eventually("it is removed", 40*time.Minute, func() bool { return w.replicas() == 0 })
				sleep(time.Minute)
				heal()
				_ = first.Ack() // of a message that is gone: whatever is answered, nothing hangs
				w.publish("after")
				left := 0
				for {
					d := w.take(con, 2*time.Minute)
					if d == nil {
						t.Fatalf("what came after the extent that is gone is not delivered, %d others are", left)
					}
					_ = d.Ack()
					if string(d.Body) == "after" {
						break
					}
					left++
				}
				if left >= len(old)-1 {
					t.Errorf("%d messages of the extent came after it was removed: it was not taken away in the midst of a read", left)
				}
				w.close(con)
			})
		})
	}
}

// TestCluster_RetentionStopsForAClock sets the controller's clock ahead by days.
func TestCluster_RetentionStopsForAClock(t *testing.T) {
	often := func(c *controller.Config) { c.RetainEvery = 10 * time.Second }
	bubble(t, Options{Controller: often}, func(w *world) {
		w.keep(2*time.Minute, 24*time.Hour)
		w.group("g", nil)
		w.publish("a")
		sleep(2 * time.Minute)
		w.hosts[Controller].skew.Store(int64(48 * time.Hour))
		sleep(7 * time.Minute) // some forty rounds
		if n := w.replicas(); n != 1 {
			t.Fatalf("%d replicas, want that of the message nobody has read", n)
		}
		if !strings.Contains(w.log.text(), "retention stops") {
			t.Error("nobody was told")
		}
		w.hosts[Controller].skew.Store(0)
		con := w.consumer("g")
		w.ok(w.next(con, "a", 1).Ack())
		w.eventually("it is removed", 20*time.Minute, func() bool { return w.replicas() == 0 })
		w.close(con)
	})
}

// TestCluster_RetentionLeavesNoRows counts what a consumed and retired extent leaves in the metadata: its tombstone.
func TestCluster_RetentionLeavesNoRows(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.keep(5*time.Minute, time.Hour)
		w.group("g", nil)
		con := w.consumer("g")
		w.publish("a")
		w.ok(w.next(con, "a", 1).Ack())
		q, err := w.Client.Admin().GetQueue(w.t.Context(), queue)
		w.ok(err)
		g, err := w.Client.Admin().GetGroup(w.t.Context(), queue, "g")
		w.ok(err)
		w.eventually("it is removed", 20*time.Minute, func() bool { return w.replicas() == 0 })
		sleep(time.Minute)
		for table, partition := range map[metadata.Table]string{
			metadata.Extents: q.ID.String(), metadata.Assignments: g.ID.String(),
		} {
			if n := w.rows(table, partition); n > 0 {
				t.Errorf("%d rows in %s", n, table.Name)
			}
		}
		if n := w.hints(metadata.HintLive); n > 0 {
			t.Errorf("%d hints", n)
		}
		if n := w.rows(metadata.Seals, metadata.PartitionID); n != 1 {
			t.Errorf("%d seal rows, want the tombstone", n)
		}
		w.close(con)
	})
}

// TestCluster_RemovalWaitsForTheWayToTheController cuts a store off from the controller, in one direction, before its
// extents are due. It removes nothing by itself, loses nothing, and removes them afterwards.
func TestCluster_RemovalWaitsForTheWayToTheController(t *testing.T) {
	for name, way := range map[string]func(store, controller string) path{
		"calls do not come":   func(store, controller string) path { return path{controller, store} },
		"answers do not come": func(store, controller string) path { return path{store, controller} },
	} {
		t.Run(name, func(t *testing.T) {
			underrace.One(t, name == "answers do not come")
			bubble(t, Options{Stores: 3, Input: rollAt(200)}, func(w *world) {
				w.keep(2*time.Minute, 5*time.Hour)
				w.group("g", nil)
				con := w.consumer("g")
				want := numbers(1, 40)
				for i := range 4 {
					w.publish(want[10*i : 10*i+10]...)
					sleep(time.Second)
				}
				w.all(w.collect(con, len(want)), want, true)
				heal := w.net.drop(way(w.hosts[Store(1)].addr, w.hosts[Controller].addr))
				had := w.replicasOn(Store(1))
				sleep(20 * time.Minute)
				if n := w.replicasOn(Store(1)); had < 4 || n < had {
					t.Errorf("the store that is cut off has %d replicas, want all %d that it had", n, had)
				}
				w.publish("meanwhile")
				w.ok(w.next(con, "meanwhile", 1).Ack())
				heal()
				w.eventually("all is removed", 40*time.Minute, func() bool { return w.replicas() == 0 })
				w.publish("after")
				w.ok(w.next(con, "after", 1).Ack())
				w.close(con)
			})
		})
	}
}
