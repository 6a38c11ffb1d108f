package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/test/process"
)

// lateExtent is a line of `columba seal --force --all-of-store -o json`.
type lateExtent struct {
	Extent, Queue, Outcome, Reason string
	LastSeq                        int `json:"last_seq"`
	Lost                           int
}

// powerCut publishes to an ap queue and a cp queue, kills all processes at once, has one store lose something, and
// starts all again.
func powerCut(t *testing.T, lose func(store *process.Server)) *process.Cluster {
	t.Helper()
	c := process.StartCluster(t, process.Layout{Inputs: 1, Outputs: 1, Stores: 3})
	s := c.Controller
	process.Eventually(t, "the controller uses all stores", func() bool { return s.Metric("columba_controller_stores") == 3 })
	for q, flags := range map[string][]string{"/t/ap": nil, "/t/cp": {"--consistency", "cp"}} {
		s.Must("", append([]string{"create", "queue", q}, flags...)...)
		s.Must("", "create", "group", q, "g", "--start", "earliest")
		s.Must(lines(100), "publish", q)
	}
	process.KillAll(c.All()...)
	lose(c.Stores[2])
	for _, p := range c.All() {
		p.Begin()
	}
	for _, p := range c.All() {
		p.Await()
	}
	c.AwaitHosts()
	return c
}

// sealing are the extents of a queue that have no end.
func sealing(t *testing.T, s *process.Server, queue string) (n int) {
	t.Helper()
	for _, e := range process.Decode[struct{ State string }](t, s.Ask("list", "extents", queue, "-o", "json")) {
		if e.State == "sealing" {
			n++
		}
	}
	return n
}

// consumeAll gets all messages of both queues.
func consumeAll(t *testing.T, s *process.Server) {
	t.Helper()
	for _, q := range []string{"/t/ap", "/t/cp"} {
		if out := s.Must("", "consume", q, "g", "--count", "100"); len(out) != len(lines(100)) {
			t.Errorf("%s: consumed %d bytes, want %d", q, len(out), len(lines(100)))
		}
	}
}

// TestPowerCutAndReplacedDisk: after a power cut one of three stores comes back under its name with an empty disk. The
// rules of the seal can decide without an operator: all extents get their ends, and everything is delivered.
func TestPowerCutAndReplacedDisk(t *testing.T) {
	byCommands(t)
	c := powerCut(t, func(store *process.Server) {
		for _, dir := range []string{"store", "stores"} {
			if err := os.RemoveAll(filepath.Join(store.Data, dir)); err != nil {
				t.Fatal(err)
			}
		}
	})
	s := c.Controller
	process.Eventually(t, "no extent stays sealing", func() bool { return sealing(t, s, "/t/ap")+sealing(t, s, "/t/cp") == 0 })
	consumeAll(t, s)
	s.Must(lines(1), "publish", "/t/cp")
}

// TestPowerCutAndLostDirectory: after a power cut one of three stores comes back with an empty directory, and so under
// another name. Nothing proves that the first one is gone: the extents that were open stay sealing. An alarm says so,
// `columba why-stuck` says what to do, and one command ends them all without a loss.
func TestPowerCutAndLostDirectory(t *testing.T) {
	byCommands(t)
	var gone string
	c := powerCut(t, func(store *process.Server) {
		text, err := os.ReadFile(filepath.Join(store.Data, "host.json"))
		if err != nil {
			t.Fatal(err)
		}
		gone = process.Decode[struct{ Host string }](t, strings.ReplaceAll(string(text), "\n", ""))[0].Host
		if err := os.RemoveAll(store.Data); err != nil {
			t.Fatal(err)
		}
	})
	s := c.Controller
	command := "columba seal --force --all-of-store " + gone
	for _, q := range []string{"/t/ap", "/t/cp"} { // a message that waits for a consumer may be the first reason
		var w standstill
		process.EventuallyOr(t, process.Patience, func() bool {
			w = process.Decode[standstill](t, s.Ask("why-stuck", q, "g", "-o", "json"))[0]
			return w.Reason == "not_sealed" && strings.Contains(w.Detail, command) || slices.Contains(w.Also, "not_sealed")
		}, func() string { return fmt.Sprintf("why-stuck of %s says %+v", q, w) })
	}
	if os.Getenv(longEnv) != "" { // it comes after 30 s
		process.Eventually(t, "the alarm", func() bool { return s.Metric("columba_controller_extents_undecided") >= 2 })
		if !strings.Contains(s.Log(), command) {
			t.Errorf("the log of the controller does not name %q", command)
		}
	}
	would := process.Decode[lateExtent](t, s.Must("", "seal", "--force", "--all-of-store", gone, "--dry-run", "-o", "json"))
	if len(would) < 2 || sealing(t, s, "/t/cp") != 1 {
		t.Errorf("a dry run would seal %v, and %d of the cp queue are left", would, sealing(t, s, "/t/cp"))
	}
	for _, e := range process.Decode[lateExtent](t, s.Must("", "seal", "--force", "--all-of-store", gone, "--yes", "-o", "json")) {
		if e.Outcome != "sealed" || e.Lost != 0 {
			t.Errorf("%+v", e)
		}
	}
	if n := sealing(t, s, "/t/ap") + sealing(t, s, "/t/cp"); n != 0 {
		t.Errorf("%d extents stay sealing", n)
	}
	consumeAll(t, s)
	s.Must(lines(1), "publish", "/t/cp")
	process.EventuallyWithin(t, time.Minute, "the alarm ends", func() bool { return s.Metric("columba_controller_extents_undecided") == 0 })
}
