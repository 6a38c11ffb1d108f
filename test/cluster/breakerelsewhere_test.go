package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// split publishes many messages to an extent, and a handful to each further one, until another output host has one of
// those. It answers how many there are.
func (w *world) split(many, few int) (n int) {
	w.t.Helper()
	for size := many; w.owners("g") < 2; size = few {
		w.publish(numbers(n+1, n+size)...)
		n += size
		for e, err := range w.Client.Admin().ListExtents(w.t.Context(), queue) {
			w.ok(err)
			if e.State == core.ExtentOpen {
				_, err := w.Client.Admin().SealExtent(w.t.Context(), queue, e.Extent.String(), client.SealOptions{})
				w.ok(err)
			}
		}
	}
	return n
}

// TestRule_Breaker_HandfulOnAnotherHost: in an outage of all workers an output host has four messages of the group, too
// few to tell. The breaker of the other one opens, so none of them dies, however long the outage lasts. The same when
// one of the hosts crashes meanwhile.
func TestRule_Breaker_HandfulOnAnotherHost(t *testing.T) {
	for _, end := range []core.Exhausted{core.ExhaustedDLQ, core.ExhaustedDrop} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, crash %v", end, crash), func(t *testing.T) {
				underrace.One(t, crash && end == core.ExhaustedDLQ)
				bubble(t, Options{Outputs: 2}, func(w *world) {
					w.group("g", func(g *core.GroupSpec) {
						g.LockTimeout, g.MaxDeliveries, g.NoNackThrottle, g.Exhausted = 10*time.Second, 5, true, end
					})
					const few = 4
					lasts := underrace.Of(5*time.Minute, 20*time.Minute)
					all := w.split(600, few) // first attempts for the whole outage, which makes about 400: without any, failures would count
					con := w.consumer("g", client.Prefetch(50))
					nack := outages["they nack"]
					n := w.stop(con, nack, time.Minute)
					if crash {
						w.Crash(Output)
						w.Up(Output)
					}
					n += w.stop(con, nack, lasts)
					if n < 5*few || n > 2000 {
						t.Errorf("%d deliveries in the outage", n)
					}
					if d := w.depth("g"); d.Dead > 0 || d.BreakerOpen < lasts {
						t.Errorf("after the outage: %+v", d)
					}
					bodies := numbers(1, all)
					w.all(w.collect(con, len(bodies)), bodies, true)
					w.eventually("all is done", time.Minute, func() bool { return counts(w.depth("g")) == "0 0 0 0 0" })
					w.close(con)
				})
			})
		}
	}
}
