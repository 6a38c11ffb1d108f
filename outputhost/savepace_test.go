package outputhost

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata"
)

// weighing is metadata that counts the bytes of checkpoints.
type weighing struct {
	metadata.Store
	bytes, writes atomic.Int64
}

func (w *weighing) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	w.writes.Add(1)
	for _, r := range rows {
		w.bytes.Add(int64(len(r.Value)))
	}
	return w.Store.PutAll(ctx, t, rows, c)
}

// TestSaver_UrgentCheckpointsArePaced: messages fail again and again, and each retry waits for a checkpoint with all of
// them. The host writes no more of those than saveBytes a second, and a round of all groups each second. A lone one is
// written at once.
func TestSaver_UrgentCheckpointsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, s := b.share(9_000, 9_000)
		spec := g.mu.record.Spec
		spec.Breaker, spec.NoNackThrottle, spec.MaxDeliveries = core.BreakerOff, true, core.UnlimitedDeliveries
		g.mu.rules.Update(spec, time.Now())
		meta := &weighing{Store: b.meta}
		b.deps.Meta = meta
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { b.saver.run(ctx) })
		defer wg.Wait()
		defer cancel()

		g.mu.Lock()
		if err := s.rules.Nack(1, 1, 0, nil, 0, time.Now()); err != nil {
			t.Fatal(err)
		}
		g.mu.Unlock()
		b.saver.note(g, saveNow)
		synctest.Wait()
		if n := meta.writes.Load(); n != 1 {
			t.Fatalf("%d checkpoints are written at once, want one", n)
		}

		g.mu.Lock()
		for seq := core.Seq(3); seq < 2_000; seq += 2 {
			if err := s.rules.Nack(seq, 1, 0, nil, 0, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		g.mu.Unlock()
		seconds := underrace.Of[int64](3, 10)
		again := 0
		for range seconds * 100 {
			g.mu.Lock()
			now := time.Now()
			g.mu.rules.Tick(now)
			g.mu.rules.Want(dispatch.Credit{Messages: 1 << 20, Bytes: 1 << 40}, true) // the host knows of no consumer
			for _, r := range g.mu.rules.Take(1, dispatch.Credit{Messages: 100, Bytes: 1 << 20}, now, nil) {
				for i := range r.Count {
					again++
					if err := s.rules.Nack(r.Base+core.Seq(i), r.Attempt, 0, nil, 0, now); err != nil {
						t.Fatal(err)
					}
				}
			}
			g.mu.Unlock()
			b.saver.note(g, saveNow)
			time.Sleep(10 * time.Millisecond)
		}
		written, most := meta.bytes.Load(), int64(saveBytes*(seconds+1)+dispatch.MaxCheckpoint*(seconds+1))
		if written > most || written < saveBytes*seconds/2 {
			t.Errorf("%d bytes are written in %d checkpoints, want at most %d and no less than half of it", written, meta.writes.Load(), most)
		}
		if again == 0 {
			t.Error("nothing came again")
		}
		t.Logf("%d bytes in %d checkpoints, %d retries", written, meta.writes.Load(), again)

		time.Sleep(5 * time.Second)
		before := meta.writes.Load()
		g.mu.Lock()
		for _, r := range g.mu.rules.Take(1, dispatch.Credit{Messages: 1, Bytes: 1 << 20}, time.Now(), nil) {
			if err := s.rules.Nack(r.Base, r.Attempt, 0, nil, 0, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		g.mu.Unlock()
		b.saver.note(g, saveNow)
		synctest.Wait()
		if n := meta.writes.Load() - before; n != 1 {
			t.Errorf("after a rest %d checkpoints are written at once, want one", n)
		}
	})
}
