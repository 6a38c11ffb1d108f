package controller

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestRetain_ShorterRetention counts within a minute if the controller is told, as a frontend does, and else within
// forty-one: the row of a queue that nobody tells of is read every forty minutes.
func TestRetain_ShorterRetention(t *testing.T) {
	for told, most := range map[bool]time.Duration{true: time.Minute, false: 41 * time.Minute} {
		bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
			r.ctl.end()
			meta := &rowsRead{Store: r.meta}
			r.use(meta)
			r.ctl = r.startController(calm)
			q := r.keeping(keepConsumed, 100*time.Hour)
			e := r.sealed(q, 1)
			r.sleep(8 * time.Minute)
			before := meta.queues.Load()
			r.sleep(80 * time.Minute)
			if n := meta.queues.Load() - before; n > 3 {
				t.Errorf("the row of the queue was read %d times in 80 minutes, want each forty", n)
			}
			_, err := metadata.Change(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(q), func(q *metadata.QueueRecord) error {
				q.Spec.UnconsumedRetention = time.Second
				return nil
			})
			r.ok(err)
			if told {
				r.ok(r.ctl.takeInHere(r.t.Context(), q, nil))
			}
			if took := r.eventually("the extent is marked", most, func() bool { return r.row(e).State != core.ExtentSealed }); !told && took < time.Second {
				t.Errorf("marked after %s", took)
			}
		})
	}
}
