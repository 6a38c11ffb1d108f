package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestSeek_SlowMetadata: of three controllers one does a seek that takes seconds. It changes the row of the group
// twice: before and after the checkpoints.
func TestSeek_SlowMetadata(t *testing.T) {
	bubble(t, Options{Controllers: 3, Input: rollAt(500)}, func(w *world) {
		w.group("g", nil)
		sleep(20 * time.Second)
		w.publish(numbers(1, 100)...)
		sleep(90 * time.Second)
		var changes atomic.Int32
		for i := range 3 {
			w.OnMeta(ControllerOf(i), func(_ context.Context, op Op) error {
				if op.Table == "group" || op.Table == "checkpoint" || op.Table == "done" || op.Table == "seal" {
					<-time.After(700 * time.Millisecond)
				}
				if op.Table == "group" && op.Name == "Update" {
					changes.Add(1)
				}
				return nil
			})
		}
		began := time.Now()
		_, err := w.Client.Admin().Seek(w.t.Context(), queue, "g", core.Start{Mode: core.StartEarliest})
		t.Logf("a seek took %s, and changed the row of the group %d times", time.Since(began), changes.Load())
		if err != nil || changes.Load() != 2 {
			t.Errorf("seek: %v, after %s; the row of the group was changed %d times, want 2", err, time.Since(began), changes.Load())
		}
		for i := range 3 {
			w.OnMeta(ControllerOf(i), nil)
		}
	})
}
