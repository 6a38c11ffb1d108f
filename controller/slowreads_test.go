package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// slowQueues is metadata of which a serial read of a queue takes a second.
type slowQueues struct {
	metadata.Store
	on atomic.Bool
}

func (s *slowQueues) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if t == metadata.Queues && c == metadata.Serial && s.on.Load() {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return s.Store.Get(ctx, t, k, c)
}

// Each queue with extents is looked up now and then, lest it was deleted. Slow metadata must not hold up the seals of a
// writer that is gone.
func TestRun_SlowLooksForDeletedQueuesHoldUpNoSeal(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		meta := &slowQueues{Store: r.meta}
		r.ctl.end()
		r.use(meta)
		r.ctl = r.startController(nil)
		var last core.Extent
		for range 60 {
			last = r.extent(r.queue(1, 1), 1)
		}
		meta.on.Store(true)
		r.sleep(retireEvery + time.Second) // a look is under way, for a minute
		r.kill("in")
		r.leave("in")
		took := r.eventually("the extents of a writer that is gone are sealed", 30*time.Second, func() bool {
			e, _ := r.ctl.extents.Get(last.ID)
			return e.State.HasEnd()
		})
		t.Logf("sealed after %s", took)
	})
}
