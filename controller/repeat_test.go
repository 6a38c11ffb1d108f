package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// noAssignments is metadata that refuse to record who owns which share.
type noAssignments struct {
	metadata.Store
	on    atomic.Bool
	tries atomic.Int64
}

func (s *noAssignments) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	if s.on.Load() && t.Name == metadata.Assignments.Name && s.tries.Add(1) < 10_000 {
		return core.Errorf(core.CodeUnavailable, "not now")
	}
	return s.Store.PutAll(ctx, t, rows, c)
}

// TestAssign_TriesAgainWithPauses: metadata that refuse at once are not asked without end.
func TestAssign_TriesAgainWithPauses(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		meta := &noAssignments{Store: r.meta}
		meta.on.Store(true)
		r.ctl.end()
		r.use(meta)
		r.ctl = r.startController(nil)
		queue := r.queue(1, 1)
		r.group(queue, "g")
		e := r.extent(queue, 1)
		r.sleep(time.Minute)
		if n := meta.tries.Load(); n < 20 || n > 200 {
			t.Errorf("%d tries in a minute", n)
		}
		meta.on.Store(false)
		r.eventually("the share is given", 5*time.Second, func() bool { return r.outputs[0].shares()[e.ID] != nil })
	})
}
