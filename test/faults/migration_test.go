package faults

import (
	"strings"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

// TestMetadataMoveToCassandra copies the metadata of a server with messages, takes the copy back, copies them again,
// and goes on in Cassandra.
func TestMetadataMoveToCassandra(t *testing.T) {
	long(t)
	first, second := onCassandra(t, "first"), onCassandra(t, "second")
	s := process.StartServer(t)
	r := newRun(t, s, "g")
	if code := r.publish(3000).Wait(); code != 0 {
		t.Fatalf("publish ended with %d", code)
	}
	r.consume("g", 0, "--count", "1000").Wait()
	copied := func(url string, flags ...string) process.Result {
		return s.Run("", append([]string{"metadata", "copy", "--data", s.Data, "--to", url}, flags...)...)
	}
	if got := copied(first); got.Code != core.ExitConflict || !strings.Contains(got.Stderr, "in use by process") {
		t.Errorf("copied while the server runs: %d %s", got.Code, got.Stderr)
	}
	if code := s.Stop(); code != 0 {
		t.Fatalf("the server ended with %d", code)
	}
	for _, step := range []struct {
		url, flag string
		code      int
		text      string
	}{
		{first, "", 0, "are copied and the same"},
		{first, "", core.ExitConflict, "that copy is complete"},
		{first, "--undo", 0, "count again"},
		{first, "--undo", 0, "count again"},
		{first, "", core.ExitConflict, "that copy is undone"},
		{second, "", 0, "are copied and the same"},
	} {
		got := copied(step.url, strings.Fields(step.flag)...)
		if got.Code != step.code || !strings.Contains(got.Stderr, step.text) {
			t.Fatalf("copy %s: exit code %d, %s; want %d with %q", step.flag, got.Code, got.Stderr, step.code, step.text)
		}
	}
	for url, text := range map[string]string{"embedded": "were copied to Cassandra", first: "was undone"} {
		if got := s.Run("", "serve", "--data", s.Data, "--listen", "127.0.0.1:0", "--metadata", url); got.Code != core.ExitConflict || !strings.Contains(got.Stderr, text) {
			t.Errorf("serve with %s: %d %s", url, got.Code, got.Stderr)
		}
	}
	s.With("--metadata", second)
	s.Start()
	s.Must("", "create", "queue", "/t/b")
	consumers := r.consumers(1)
	r.drain()
	interrupt(t, consumers)
	r.check()
	s.Stop()
	if got := copied(second, "--undo"); got.Code != core.ExitConflict || !strings.Contains(got.Stderr, "a server has started on the copy") {
		t.Errorf("undone after the start: %d %s", got.Code, got.Stderr)
	}
}
