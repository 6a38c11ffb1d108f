package faults

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/tools/verify"
)

// TestForeignController: while the controller is stopped another one gossips with its hosts: one with an empty
// directory ends and says why, one of another cluster goes on for itself. No publisher hears a definite failure of
// either, the hosts say what is the case, and all goes on when the controller is back.
func TestForeignController(t *testing.T) {
	c := process.StartCluster(t, process.Layout{Stores: 1, Inputs: 1, Outputs: 1})
	s := c.Controller
	l := newForeign(t, s)
	hosts := []*process.Server{c.Stores[0], c.Inputs[0], c.Outputs[0]}
	l.start(1, 1)
	l.goesOn(100)
	s.Kill()

	for _, h := range hosts {
		process.Eventually(t, h.Name+" knows that the controller is gone", func() bool { return strings.Contains(h.Log(), "host is gone") })
	}
	empty := c.Stranger("empty", filepath.Join(t.TempDir(), "empty"), "--roles", "controller,frontend")
	if code, said := empty.Ended(), empty.Log(); code == 0 || !strings.Contains(said, "belongs to a cluster whose metadata are not in data directory "+empty.Data) {
		t.Errorf("a controller with an empty directory ended with %d; it said …%s", code, said[max(0, len(said)-500):])
	}

	alone := process.StartServer(t, "--roles", "controller,frontend", "--gossip", "127.0.0.1:0")
	if code := alone.Stop(); code != 0 {
		t.Fatalf("the other cluster's controller ended with %d", code)
	}
	other := c.Stranger("other", alone.Data, "--roles", "controller,frontend")
	other.Await()
	for _, h := range hosts {
		process.Eventually(t, h.Name+" counts the foreign host", func() bool { return h.Metric("columba_server_foreign_hosts") == 1 })
		process.Eventually(t, h.Name+" logs that a host of another cluster is there", func() bool {
			return strings.Contains(h.Log(), "a host of another cluster gossips with this one and is not taken for a member; start it with --join of its own cluster")
		})
	}
	if r := other.Run("", "list", "hosts", "-o", "json"); strings.Contains(r.Stdout, c.Stores[0].Addr) {
		t.Errorf("the other cluster lists a store of this one: %s", r.Stdout)
	}
	l.goesOn(100) // on the open extent, without a controller

	from := time.Now()
	s.Start()
	c.AwaitHosts()
	l.goesOn(100)
	t.Logf("whole again %s after the controller's start", time.Since(from).Round(100*time.Millisecond))
	other.Kill()
	l.finish()
	if n := l.outcomes[verify.Failed]; n > 0 {
		t.Errorf("%d publishes failed for good: %v", n, l.refusals)
	}
	process.Eventually(t, "no foreign host is counted", func() bool { return c.Inputs[0].Metric("columba_server_foreign_hosts") == 0 })
}

// newForeign is a load of one calm group whose consumers stay.
func newForeign(t *testing.T, s *process.Server) *load {
	t.Helper()
	s.Must("", "create", "queue", queue, "--replicas", "1", "--min-replicas", "1")
	l := newLoadOf(t, s, 100, []string{"calm"})
	l.stay = func() time.Duration { return time.Hour } // a new consumer asks the frontend where to go
	return l
}
