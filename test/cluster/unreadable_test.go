package cluster

import (
	"testing"
	"time"
)

// A group reads the oldest extents first, a few side by side. Those whose only store is away must not hold up the
// others: what was acknowledged by a store that is well is delivered.
func TestCluster_UnreadableExtentsDoNotHoldUpOthers(t *testing.T) {
	bubble(t, Options{Stores: 2, Replicas: 1, Input: rollAt(500)}, func(w *world) {
		w.group("g", nil)
		away := func() (n int) {
			for e, err := range w.Client.Admin().ListExtents(w.t.Context(), queue) {
				w.ok(err)
				if e.Replicas[0] == string(Store(0)) {
					n++
				}
			}
			return n
		}
		for range 200 { // which store gets an extent is left to chance
			w.publish(numbers(1, 10)...)
			sleep(time.Second)
			if away() > 8 {
				break
			}
		}
		sleep(2 * time.Minute)
		w.Crash(Store(0))
		sleep(10 * time.Second)
		w.publish("fresh")
		if n := away(); n <= 8 {
			t.Fatalf("%d extents are on the store that is away, want more than a group reads at once", n)
		}
		con := w.consumer("g")
		fresh := false
		for !fresh {
			d := w.take(con, time.Minute)
			if d == nil {
				t.Fatal("what was published while the other store was away did not come")
			}
			fresh = string(d.Body) == "fresh"
			w.ok(d.Ack())
		}
		w.close(con)
	})
}
