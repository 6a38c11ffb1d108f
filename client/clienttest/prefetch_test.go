package clienttest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/client/clienttest"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// TestConsumer_HoldsItsPrefetchOverResets resets the connection every 5 s while messages wait at the client: it never
// holds more than its prefetch, and goes on when they are taken.
func TestConsumer_HoldsItsPrefetchOverResets(t *testing.T) {
	const n, prefetch = 300, 10
	for name, group := range map[string]core.GroupSpec{
		"at least once": {LockTimeout: time.Hour},
		"at most once":  {Delivery: core.AtMostOnce},
	} {
		for _, limit := range []int{0, n} {
			t.Run(fmt.Sprintf("%s, limit %d", name, limit), func(t *testing.T) {
				underrace.One(t, limit == 0 && group.Delivery != core.AtMostOnce)
				bubble(t, group, func(t *testing.T, b *clienttest.Broker) {
					bodies := make([]string, n)
					for i := range bodies {
						bodies[i] = fmt.Sprint(i)
					}
					b.Publish(t, queue, bodies...)
					con := consumer(t, b, client.Prefetch(prefetch), client.Limit(limit))
					taken := 0
					for round := range 40 {
						b.Advance(5 * time.Second)
						if ready := int(b.Depth(t, queue, "billing").Ready); n-ready-taken > prefetch {
							t.Fatalf("after %d resets the client holds %d messages, want %d at most", round, n-ready-taken, prefetch)
						}
						if round%4 == 3 {
							ok(t, take(t, con).Ack())
							taken++
							b.Advance(time.Second) // the credit of this one brings others, and a reset loses those on their way
						}
						b.Disconnect()
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					for d, err := range con.Deliveries(ctx) {
						ok(t, err)
						if string(d.Body) != fmt.Sprint(taken) || d.Attempt != 1 {
							t.Fatalf("got %s as attempt %d, want %d as the first", d.Body, d.Attempt, taken)
						}
						ok(t, d.Ack())
						taken++
					}
					if taken != n {
						t.Errorf("%d of %d messages were yielded", taken, n)
					}
					ok(t, con.Close(t.Context()))
				})
			})
		}
	}
}
