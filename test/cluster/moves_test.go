package cluster

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestConsume_PlannedMoveDeliversOnce has output hosts come, so that shares move away from one that is well, while
// consumers work on jobs that last. Checkpoints of the host that gives away take a moment.
func TestConsume_PlannedMoveDeliversOnce(t *testing.T) {
	const n, job = 8000, 2 * time.Second
	bubble(t, Options{Outputs: 3, Input: rollAt(5_000)}, func(w *world) {
		w.Crash(OutputOf(1), OutputOf(2))
		w.group("g", nil)
		bodies := numbers(1, n)
		for part := range slices.Chunk(bodies, n/20) {
			w.publish(part...) // so that there are many extents
		}
		slow := func(_ context.Context, op Op) error {
			if op.Name == "PutAll" {
				sleep(50 * time.Millisecond)
			}
			return nil
		}
		w.OnMeta(Output, slow)
		ctx, cancel := context.WithCancel(w.t.Context())
		defer cancel()
		var mu sync.Mutex
		var wg sync.WaitGroup
		got := make(map[string]int)
		for i := range 20 {
			con := w.consumer("g", client.Prefetch(20))
			sleep(time.Duration(10+i) * time.Millisecond) // so that they ask at other times
			wg.Go(func() {
				var jobs sync.WaitGroup
				for d, err := range con.Deliveries(ctx) {
					if err != nil {
						break
					}
					mu.Lock()
					got[string(d.Body)]++
					mu.Unlock()
					jobs.Go(func() {
						sleep(job)
						if err := d.Ack(); err != nil {
							w.t.Errorf("ack %s: %v", d.Body, err)
						}
					})
					sleep(100 * time.Millisecond)
				}
				jobs.Wait()
				w.close(con)
			})
		}
		moved := func(to core.HostID) {
			before := w.owned()
			w.Up(to)
			w.OnMeta(to, slow)
			w.eventually("shares move to "+string(to), 10*time.Second, func() bool { return w.owned()[to] > before[to] })
		}
		sleep(10 * time.Second)
		moved(OutputOf(1))
		sleep(10 * time.Second)
		moved(OutputOf(2))
		w.eventually("all messages come", 10*time.Minute, func() bool { mu.Lock(); defer mu.Unlock(); return len(got) == n })
		sleep(2 * time.Minute) // for what comes again when its lock has ended
		cancel()
		wg.Wait()
		w.all(got, bodies, true)
	})
}

// owned is how many shares of group g output hosts own.
func (w *world) owned() map[core.HostID]int {
	w.t.Helper()
	g, err := w.Client.Admin().GetGroup(w.t.Context(), queue, "g")
	w.ok(err)
	out := make(map[core.HostID]int)
	for r, err := range metadata.All[metadata.AssignmentRecord](w.t.Context(), w.Meta, metadata.Assignments, g.ID.String(), metadata.One) {
		w.ok(err)
		out[r.Value.Owner]++
	}
	return out
}
