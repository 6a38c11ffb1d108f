package cluster

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// TestConsume_PlannedMoveOfAtMostOnceLosesNothing has output hosts come, so that shares of a group that delivers at
// most once move away from one that is well, while messages are claimed and not handed out yet. The metadata take a
// moment.
func TestConsume_PlannedMoveOfAtMostOnceLosesNothing(t *testing.T) {
	const n = 8000
	bubble(t, Options{Outputs: 3, Input: rollAt(5_000)}, func(w *world) {
		w.Crash(OutputOf(1), OutputOf(2))
		w.onceGroup()
		bodies := numbers(1, n)
		for part := range slices.Chunk(bodies, n/20) {
			w.publish(part...) // so that there are many extents
		}
		slow := func(context.Context, Op) error {
			sleep(20 * time.Millisecond)
			return nil
		}
		w.OnMeta(Output, slow)
		ctx, cancel := context.WithCancel(w.t.Context())
		defer cancel()
		var mu sync.Mutex
		var wg sync.WaitGroup
		got := make(map[string]int)
		for i := range 10 {
			con := w.consumer("g", client.Prefetch(40))
			sleep(time.Duration(10+i) * time.Millisecond) // so that they ask at other times
			wg.Go(func() {
				for d, err := range con.Deliveries(ctx) {
					if err != nil {
						break
					}
					mu.Lock()
					got[string(d.Body)]++
					mu.Unlock()
					sleep(30 * time.Millisecond)
				}
				w.close(con)
			})
		}
		moved := func(to core.HostID) {
			before := w.owned()
			w.Up(to)
			w.OnMeta(to, slow)
			w.eventually("shares move to "+string(to), 10*time.Second, func() bool { return w.owned()[to] > before[to] })
		}
		sleep(3 * time.Second)
		moved(OutputOf(1))
		sleep(3 * time.Second)
		moved(OutputOf(2))
		sleep(2 * time.Minute)
		cancel()
		wg.Wait()
		w.never(got, n, 0)
	})
}
