package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// A list that has begun is whole although a page of it is not answered at once. When --timeout is over the list ends
// with the cause.
func TestList_PagesAgain(t *testing.T) {
	s, addr := newFakeServer(t)
	for _, path := range []string{"/a/1", "/a/2", "/a/3", "/a/4", "/a/5"} {
		if err := s.setup(path, "g"); err != nil {
			t.Fatal(err)
		}
	}
	s.slow.Store(3)
	out, stderr, code := runCLI(addr, []string{"list", "queues", "--prefix", "/a/", "-o", "json"}, "")
	if n := strings.Count(out, "\n"); code != core.ExitOK || n != 5 {
		t.Errorf("exit code %d, %d of 5 queues, %q", code, n, stderr)
	}
	s.slow.Store(1000)
	began := time.Now()
	out, stderr, code = runCLI(addr, []string{"list", "queues", "--prefix", "/a/", "-o", "json", "--timeout", "1s"}, "")
	if n := strings.Count(out, "\n"); code != core.ExitUnavailable || n != 1 || !strings.Contains(stderr, "in time") {
		t.Errorf("exit code %d, %d queues, want 1, %q", code, n, stderr)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it gave up after %s", took)
	}
}
