package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/columbamq/columba/test/process"
)

// TestStoreRolledBack puts an older copy of the directory of a queue's only store back: half of a sealed extent is
// lost. The loss raises an alarm, and the messages that survive are delivered.
func TestStoreRolledBack(t *testing.T) {
	byCommands(t)
	waits(t)
	c := process.StartCluster(t, process.Layout{Stores: 1, Inputs: 1, Outputs: 1})
	s, store := c.Controller, c.Stores[0]
	s.Must("", "create", "queue", queue, "--replicas", "1", "--min-replicas", "1")
	s.Must("", "create", "group", queue, "g", "--start", "earliest")
	s.Must(lines(1000), "publish", queue)
	store.Pause()
	older := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(store.Data)); err != nil {
		t.Fatal(err)
	}
	store.Continue()
	s.Must(lines(1000), "publish", queue)
	var short []string // the next extent of the queue may end here too, empty
	for _, e := range process.Decode[struct{ Extent, State string }](t, s.Ask("list", "extents", queue, "-o", "json")) {
		if e.State == "open" {
			s.Must("", "seal", queue, e.Extent)
			short = append(short, e.Extent)
		}
	}
	store.Kill()
	if err := os.RemoveAll(store.Data); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(store.Data, os.DirFS(older)); err != nil {
		t.Fatal(err)
	}
	store.Start()
	c.AwaitHosts()
	process.Eventually(t, "the loss is an alarm", func() bool {
		return s.Metric("columba_controller_extents_lost") == 1 && s.Metric("columba_controller_copies_below_minimum") == 1
	})
	if out := s.Must("", "consume", queue, "g", "--count", "1000"); out != lines(1000) {
		t.Errorf("consumed %d bytes, want the %d that survive", len(out), len(lines(1000)))
	}
	for _, e := range short {
		s.Must("", "seal", queue, e, "--force", "--yes")
	}
	process.Eventually(t, "the alarm ends, and nothing is left", func() bool {
		return s.Metric("columba_controller_extents_lost")+s.Metric("columba_controller_copies_below_minimum") == 0 &&
			strings.Contains(s.Ask("depth", queue, "g", "-o", "json"), `"ready":0`)
	})
}
