package cluster

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// inOrder are workers that apply messages in order.
var inOrder = []struct {
	name    string
	waiting int
	plain   bool // without breaker and nack throttle
	opts    []client.WorkOption
}{
	{name: "30 waiting", waiting: 30},
	{name: "200 waiting", waiting: 200},
	{name: "30 waiting, prefetch 1", waiting: 30, opts: []client.WorkOption{client.Prefetch(1)}},
	{name: "200 waiting, prefetch 1", waiting: 200, opts: []client.WorkOption{client.Prefetch(1)}},
	{name: "200 waiting, prefetch 1, no breaker", waiting: 200, opts: []client.WorkOption{client.Prefetch(1)}, plain: true},
}

// TestScenario_ApplyInOrder has one worker accept only the next number, as the guide to ordering shows, and send all
// others back for a second. Of the messages that wait, the one it needs was published last.
func TestScenario_ApplyInOrder(t *testing.T) {
	for _, x := range inOrder {
		t.Run(x.name, func(t *testing.T) {
			underrace.One(t, x.waiting == 30)
			bubble(t, Options{}, func(w *world) {
				w.group("g", func(g *core.GroupSpec) {
					if g.MaxDeliveries, g.NoNackThrottle = core.UnlimitedDeliveries, x.plain; x.plain {
						g.Breaker = core.BreakerOff
					}
				})
				w.applyInOrder(x.waiting, x.opts...)
			})
		})
	}
}

// applyInOrder has the group's worker apply so many messages within an hour.
func (w *world) applyInOrder(waiting int, opts ...client.WorkOption) {
	bodies := numbers(1, waiting)
	slices.Reverse(bodies)
	w.publish(bodies...)
	var applied, given atomic.Int64
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { // joined below
		ended <- w.Client.Work(ctx, queue, "g", func(_ context.Context, d *client.Delivery) error {
			given.Add(1)
			n, err := strconv.ParseInt(string(d.Body), 10, 64)
			switch next := applied.Load() + 1; {
			case err != nil:
				return client.Reject(err.Error())
			case n < next:
				return nil // it was applied before
			case n > next:
				return client.Retry(time.Second)
			}
			applied.Add(1)
			return nil
		}, opts...)
	}()
	began := time.Now()
	for applied.Load() < int64(waiting) && time.Since(began) < time.Hour {
		sleep(time.Second)
	}
	w.t.Logf("%d of %d applied in %s, with %d deliveries", applied.Load(), waiting, time.Since(began), given.Load())
	if n := applied.Load(); n < int64(waiting) {
		w.t.Errorf("%d of %d messages are applied after an hour", n, waiting)
	}
	if n := w.letters("g"); n != 0 {
		w.t.Errorf("%d dead letters", n)
	}
	stop()
	w.ok(<-ended)
}
