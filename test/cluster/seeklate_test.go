package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestSeek_LateDoneRow sends a group to latest, and, while the controller still notes what that epoch does not get, to
// earliest. The group consumes everything in the second epoch. Then the first seek goes on: nothing comes again, also
// after a restart.
func TestSeek_LateDoneRow(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		for i := range 4 { // four extents that are sealed
			w.publish(numbers(10*i+1, 10*i+10)...)
			sleep(80 * time.Second)
		}
		con := w.consumer("g")
		w.all(w.collect(con, 40), numbers(1, 40), true)
		sleep(5 * time.Second)
		var seen atomic.Int64
		held, release := make(chan struct{}), make(chan struct{})
		w.OnMeta(Controller, func(_ context.Context, op Op) error {
			if op.Name == "Put" && op.Table == metadata.Dones.Name && seen.Add(1) == 1 {
				close(held)
				<-release
			}
			return nil
		})
		first := make(chan error, 1)
		go func() {
			_, err := w.Client.Admin().Seek(w.t.Context(), queue, "g", core.Start{Mode: core.StartLatest})
			first <- err
		}()
		<-held
		_, err := w.Client.Admin().Seek(w.t.Context(), queue, "g", core.Start{Mode: core.StartEarliest})
		w.ok(err)
		w.all(w.collect(con, 40), numbers(1, 40), true)
		w.eventually("it has consumed all", 10*time.Second, func() bool { return w.depth("g").Ready+w.depth("g").InFlight == 0 })
		sleep(3 * time.Second)
		close(release)
		if err := <-first; err != nil && core.CodeOf(err) != core.CodeConflict {
			t.Errorf("the first seek failed: %v", err)
		}
		w.OnMeta(Controller, nil)
		sleep(5 * time.Second)
		w.Restart(Controller)
		sleep(20 * time.Second)
		n := 0
		for d := w.take(con, 20*time.Second); d != nil; d = w.take(con, 20*time.Second) {
			w.ok(d.Ack())
			n++
		}
		if n > 0 {
			t.Errorf("%d messages that were consumed came again", n)
		}
		w.close(con)
	})
}

// TestSeek_DoneRowsOfBefore: the done rows of a data directory of before epochs were part of their keys count as ever,
// and a seek makes them void.
func TestSeek_DoneRowsOfBefore(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		for i := range 2 {
			w.publish(numbers(10*i+1, 10*i+10)...)
			sleep(80 * time.Second)
		}
		con := w.consumer("g")
		w.all(w.collect(con, 20), numbers(1, 20), true)
		sleep(5 * time.Second)
		g, err := w.Client.Admin().GetGroup(w.t.Context(), queue, "g")
		w.ok(err)
		n := 0
		for row, err := range metadata.All[metadata.DoneRecord](w.t.Context(), w.Meta, metadata.Dones, g.ID.String(), metadata.Serial) {
			w.ok(err)
			extent, err := metadata.DoneExtent(row.Key)
			w.ok(err)
			old := metadata.Key{Partition: row.Key.Partition, Row: extent.String()}
			w.ok(metadata.Write(w.t.Context(), w.Meta, metadata.Dones, old, row.Value, row.Written, 0, metadata.Quorum))
			w.ok(w.Meta.Remove(w.t.Context(), metadata.Dones, row.Key, time.Now(), metadata.Quorum))
			n++
		}
		if n == 0 {
			t.Fatal("nothing is consumed")
		}
		w.Restart(Controller)
		w.Restart(Output)
		if d := w.take(con, time.Minute); d != nil {
			t.Errorf("%s was consumed before, and came again", d.Body)
		}
		if d := w.depth("g"); d.Ready+d.InFlight > 0 {
			t.Errorf("the depth is %+v", d)
		}
		w.seek("g", core.Start{Mode: core.StartEarliest})
		w.all(w.collect(con, 20), numbers(1, 20), true)
		w.close(con)
	})
}
