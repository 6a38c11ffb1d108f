package controller

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// createRowsLost is metadata of which the answers to writes of create rows may be lost, with the writes.
type createRowsLost struct {
	metadata.Store
	on atomic.Bool
}

func (s *createRowsLost) Put(ctx context.Context, t metadata.Table, k metadata.Key, v []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	if t == metadata.Extents && s.on.Load() {
		return core.Errorf(core.CodeUnknown, "injected")
	}
	return s.Store.Put(ctx, t, k, v, at, ttl, c)
}

// TestChain_RowsOfAnotherControllerStay: the head has moved, its controller cannot write the rows, and another one,
// whose clock is behind, writes them. The first one must not remove them: the extent is there.
func TestChain_RowsOfAnotherControllerStay(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		meta := &createRowsLost{Store: r.meta}
		r.ctl.end()
		r.use(meta)
		r.ctl = r.startController(nil)
		queue := r.chainedQueue()
		meta.on.Store(true)
		if e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue)); err == nil {
			t.Fatalf("got %s, whose create row is not written", e.ID)
		}
		meta.on.Store(false)
		other, err := New(DefaultConfig(), Deps{
			Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Meta: r.meta, Peers: r.ctl.pool, Members: r.members,
			Now: func() time.Time { return time.Now().Add(-time.Minute) },
		})
		r.ok(err)
		head, err := metadata.ReadHead(r.t.Context(), r.meta, queue, metadata.Serial)
		r.ok(err)
		state, err := other.adoptHead(r.t.Context(), head)
		r.ok(err)
		r.sleep(2 * time.Minute)
		if n, open, live := rows(r, metadata.Extents, queue.String()), hints(r, metadata.HintOpen), hints(r, metadata.HintLive); n != 1 || open != 1 || live != 1 {
			t.Errorf("%d rows, %d open and %d live hints, want those of the head, which is %s", n, open, live, state)
		}
	})
}
