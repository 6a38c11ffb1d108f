package faults

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

// TestSpeedOnCassandra measures how long queues, extents and seals take on three real nodes, beside nothing else. Each
// has a goal, and where the nodes are too slow for it, the time of its calls on the nodes, which are measured in turn
// with it. TestPaxos_OfExtents and TestRoundTrips_OfExtents of controller count these calls.
func TestSpeedOnCassandra(t *testing.T) {
	long(t)
	alone := startCalls(t)
	c := process.StartCluster(t, process.Layout{Stores: 3, Inputs: 1, Outputs: 1, Metadata: onCassandra(t, "all")})
	admin := c.Controller.Client().Admin()
	create := func(kind core.Consistency, callers, many int) float64 {
		return rate(callers, many, func(caller, n int) {
			path := fmt.Sprintf("/t/%s-%d-%d-%d", kind, callers, caller, n)
			if _, err := admin.CreateQueue(t.Context(), core.QueueSpec{Path: path, Consistency: kind}); err != nil {
				t.Errorf("create queue %s: %v", path, err)
			}
		})
	}
	const many, callers = 100, 16
	for _, kind := range []core.Consistency{core.AP, core.CP} {
		t.Logf("%d %s queues created by one caller: %.0f a second", many, kind, create(kind, 1, many))
	}
	queues := create(core.AP, callers, 8*many)
	possible := rate(callers, 8*many, func(int, int) { alone.swapTwice(); alone.puts(); alone.get() })
	t.Logf("%d queues created by %d callers: %.0f a second, goal %d; the calls alone: %.0f a second", 8*many, callers, queues, queuesGoal, possible)
	if queues < min(queuesGoal, possible/callSlack) {
		t.Errorf("%d callers create %.0f queues a second, want %d, or the %.0f of the calls alone by %.1f", callers, queues, queuesGoal, possible, callSlack)
	}
	for _, of := range []struct {
		kind core.Consistency
		goal float64 // seconds until an extent is created
	}{{core.CP, 0.025}, {core.AP, 0.010}} { // AP last: those that are not sealed here seal themselves a minute later
		const creating, sealing = "columba_controller_extent_created_seconds", "columba_controller_extent_sealed_seconds"
		created, sealed, beside := c.Controller.Histogram(creating), c.Controller.Histogram(sealing), samples{}
		for n := range many {
			path := fmt.Sprintf("/t/%s-1-0-%d", of.kind, n)
			publishOne(t, c.Controller.Client(), path)
			for _, e := range extentsOf(t, c.Controller, path) {
				if e.State == string(core.ExtentOpen) {
					c.Controller.Must("", "seal", path, e.Extent)
				}
			}
			beside.take(alone)
		}
		created, sealed = c.Controller.Histogram(creating).Since(created), c.Controller.Histogram(sealing).Since(sealed)
		if created.Count() < many || sealed.Count() < many {
			t.Errorf("%s: %d extents were created and %d sealed, want %d at least", of.kind, created.Count(), sealed.Count(), many)
		}
		beside.judge(t, string(of.kind)+" created", fmt.Sprintf("extents of %s queues created", of.kind), of.goal, created)
		beside.judge(t, "sealed", fmt.Sprintf("extents of %s queues sealed", of.kind), 0.030, sealed)
	}
}

// queuesGoal is how many queues are created in a second at least.
const queuesGoal = 80

// rate is how often a second callers do it side by side, many times together.
func rate(callers, many int, do func(caller, n int)) float64 {
	began := time.Now()
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for n := range many / callers {
				do(caller, n)
			}
		})
	}
	wg.Wait()
	return float64(many) / time.Since(began).Seconds()
}

func publishOne(t *testing.T, cl *client.Client, path string) {
	t.Helper()
	p, err := cl.Publisher(t.Context(), path)
	if err == nil {
		_, err = p.Publish(t.Context(), client.Message{Body: []byte("one")})
	}
	if err == nil {
		err = p.Close(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}
