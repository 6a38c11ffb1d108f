package faults

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/metadata/scale"
	"github.com/columbamq/columba/test/process"
)

// TestMetadataCopyOutlivesAnOutage copies many rows to Cassandra, whose nodes stand still for 20 seconds meanwhile: the
// copy says so, and goes on.
func TestMetadataCopyOutlivesAnOutage(t *testing.T) {
	long(t)
	all, url := nodes.Start(t), onCassandra(t, "all")
	s := process.StartServer(t)
	s.Stop()
	fillMetadata(t, filepath.Join(s.Data, "metadata"), scale.Size{Queues: 1000, Extents: 10, Behind: 2})
	c := s.Launch(nil, func([]byte) {}, "metadata", "copy", "--data", s.Data, "--to", url)
	process.EventuallyWithin(t, 5*time.Minute, "rows are copied", func() bool { return strings.Contains(c.Stderr(), "rows copied") || !c.Running() })
	for _, n := range all {
		n.Pause(t)
	}
	pass(20 * time.Second)
	for _, n := range all {
		n.Resume()
	}
	process.EventuallyWithin(t, scaleLimit, "the copy ends", func() bool { return !c.Running() })
	if code := c.Wait(); code != 0 || !strings.Contains(c.Stderr(), "has not answered for 1") || !strings.Contains(c.Stderr(), "are copied and the same") {
		t.Errorf("the copy ended with %d, and said\n%s", code, c.Stderr())
	}
	t.Log(c.Stderr())
}
