package controller

import (
	"context"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// slowSealRows is metadata of which each seal row takes a second to read, 16 rows side by side.
type slowSealRows struct{ metadata.Store }

func (s slowSealRows) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	ctx, cancel := metadata.Deadline(ctx)
	defer cancel()
	if t == metadata.Seals {
		select {
		case <-time.After(time.Duration((len(keys)+15)/16) * time.Second):
		case <-ctx.Done():
			return nil, core.Errorf(core.CodeUnavailable, "read %d rows: %w", len(keys), context.Cause(ctx))
		}
	}
	return metadata.GetRows(ctx, s.Store, t, keys, c)
}

// TestLoading_SlowRows: each row takes a second, which is within the time of a read. A controller that starts reads
// them all nevertheless.
func TestLoading_SlowRows(t *testing.T) {
	bubble(t, harnessOptions{edit: beside}, func(r *harness) {
		r.ctl.end()
		queue := r.queue(1, 1)
		for range 2 * sealRowsAtOnce {
			e := metadata.ExtentRecord{Created: time.Now()}
			e.Extent = core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: queue, Kind: core.KindLog, Input: "in", Replicas: []core.HostID{"store1"}}
			r.ok(metadata.Write(r.t.Context(), r.meta, metadata.Work, metadata.HintKey(metadata.HintLive, e.ID), e, time.Now(), 0, metadata.Quorum))
		}
		r.sleep(time.Second)
		r.use(slowSealRows{r.meta})
		r.ctl = r.startController(beside)
		r.eventually("all extents are known", 3*time.Minute, func() bool { return r.ctl.loaded() == nil })
	})
}
