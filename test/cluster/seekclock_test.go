package cluster

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestCluster_SeekAfterAClockThatWasAhead: a group has consumed an extent on an output host whose clock was five
// minutes ahead. When that was set right and the group is sent back, it gets everything once more, not again and again
// until the five minutes are over.
func TestCluster_SeekAfterAClockThatWasAhead(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.hosts[OutputOf(0)].skew.Store(int64(5 * time.Minute))
		w.group("g", nil)
		con := w.consumer("g")
		bodies := numbers(1, 50)
		w.publish(bodies...)
		w.all(w.collect(con, len(bodies)), bodies, true)
		sleep(3 * time.Minute) // sealed as idle, and done
		w.Crash(OutputOf(0))
		w.hosts[OutputOf(0)].skew.Store(0)
		w.Up(OutputOf(0))
		sleep(5 * time.Second)
		w.seek("g", core.Start{Mode: core.StartEarliest})
		w.all(w.collect(con, len(bodies)), bodies, true)
		if d := w.take(con, 2*time.Minute); d != nil {
			t.Errorf("%s came again, it was consumed since the seek", d.Body)
		}
		w.close(con)
	})
}
