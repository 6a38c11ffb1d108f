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

// TestSpeedOnCassandra measures how long queues, extents and seals take on three real nodes, beside nothing else. Its
// figures depend on the machine, and fail nothing. TestPaxos_OfExtents and TestRoundTrips_OfExtents of controller count
// their calls.
func TestSpeedOnCassandra(t *testing.T) {
	long(t)
	c := process.StartCluster(t, process.Layout{Stores: 3, Inputs: 1, Outputs: 1, Metadata: onCassandra(t, "all")})
	admin := c.Controller.Client().Admin()
	rate := func(kind core.Consistency, callers, many int) {
		began := time.Now()
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for n := range many / callers {
					path := fmt.Sprintf("/t/%s-%d-%d-%d", kind, callers, i, n)
					if _, err := admin.CreateQueue(t.Context(), core.QueueSpec{Path: path, Consistency: kind}); err != nil {
						t.Errorf("create queue %s: %v", path, err)
					}
				}
			})
		}
		wg.Wait()
		t.Logf("%d %s queues created by %d callers: %.0f a second", many, kind, callers, float64(many)/time.Since(began).Seconds())
	}
	const many = 100
	rate(core.AP, 1, many)
	rate(core.CP, 1, many)
	rate(core.AP, 16, 8*many)
	for _, kind := range []core.Consistency{core.AP, core.CP} {
		created, sealed := c.Controller.Histogram("columba_controller_extent_created_seconds"), c.Controller.Histogram("columba_controller_extent_sealed_seconds")
		for n := range many {
			path := fmt.Sprintf("/t/%s-1-0-%d", kind, n)
			publishOne(t, c.Controller.Client(), path)
			for _, e := range extentsOf(t, c.Controller, path) {
				if e.State == string(core.ExtentOpen) {
					c.Controller.Must("", "seal", path, e.Extent)
				}
			}
		}
		created, sealed = c.Controller.Histogram("columba_controller_extent_created_seconds").Since(created), c.Controller.Histogram("columba_controller_extent_sealed_seconds").Since(sealed)
		if created.Count() < many || sealed.Count() < many {
			t.Errorf("%s: %d extents were created and %d sealed, want %d at least", kind, created.Count(), sealed.Count(), many)
		}
		t.Logf("%d extents of %s queues created: median %.1f ms", created.Count(), kind, 1e3*created.Median())
		t.Logf("%d extents of %s queues sealed: median %.1f ms", sealed.Count(), kind, 1e3*sealed.Median())
	}
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
