package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
)

// TestCluster_FaultyMetadataUnderLoad refuses, delays and loses calls, with rolls and consumers.
func TestCluster_FaultyMetadataUnderLoad(t *testing.T) {
	faults := faulty.Faults{Seed: 1, Before: 0.05, Lost: 0.05, Delay: 20 * time.Millisecond}
	var bad *switched
	o := Options{Stores: 2, Input: rollAt(4_000), Meta: func(s metadata.Store) metadata.Store {
		bad = &switched{Store: s, faulty: faulty.New(s, faults)}
		return bad
	}}
	bubble(t, o, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		stop := w.load(2)
		bad.on.Store(true)
		sleep(3 * time.Second)
		acked := stop()
		got := w.collect(con, len(acked))
		bad.on.Store(false)
		w.all(got, acked, true)
		w.close(con)
	})
}

// TestCluster_GracefulRestartsUnderLoad restarts every host in turn: publishers see no error.
func TestCluster_GracefulRestartsUnderLoad(t *testing.T) {
	bubble(t, Options{Stores: 2}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = 5 * time.Second })
		con := w.consumer("g")
		stop := w.load(3)
		for _, id := range w.All() {
			sleep(200 * time.Millisecond)
			w.Restart(id)
		}
		sleep(time.Second)
		acked := stop()
		got := w.collect(con, len(acked))
		missing := 0
		for _, b := range acked {
			if got[b] == 0 {
				missing++
			}
		}
		if missing > 0 {
			t.Errorf("of %d acknowledged messages %d never came", len(acked), missing)
		}
		w.close(con)
	})
}

// TestCluster_RollWithoutController publishes to an extent that is full and cannot be replaced, which is tried again
// and said once.
func TestCluster_RollWithoutController(t *testing.T) {
	bubble(t, Options{Input: rollAt(1000)}, func(w *world) {
		w.group("g", nil)
		w.publish("a")
		w.Crash(Controller)
		stop := w.load(2)
		sleep(10 * time.Second)
		acked := append(stop(), "a")
		if n := strings.Count(w.log.text(), "cannot open an extent"); n != 1 {
			t.Errorf("it is logged %d times, want once", n)
		}
		w.Up(Controller)
		con := w.consumer("g")
		w.all(w.collect(con, len(acked)), acked, true)
		w.close(con)
	})
}
