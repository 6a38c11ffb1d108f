package integration

import (
	"slices"
	"strings"
	"testing"

	"github.com/columbamq/columba/test/process"
)

// TestRuleByCommand_RetryLimit has all messages of a group fail that may hold 100 retries: no more than these are
// delivered before a retry ends, or the limit is raised.
func TestRuleByCommand_RetryLimit(t *testing.T) {
	w := newWorld(t)
	w.make("g", "--max-delayed-retries", "100", "--backoff", "5m,1,5m", "--breaker", "off", "--no-nack-throttle")
	w.say(numbers(1, 300)...)
	fail := func() int {
		return strings.Count(w.server.Run("", "consume", queue, "g", "--prefetch", "10", "--nack-every", "1", "--timeout", "4s").Stdout, "\n")
	}
	n := 0 // in its first seconds the server does not know how many retries there are, and allows a tenth
	process.Eventually(t, "the limit is reached", func() bool {
		n += fail()
		return n >= 100
	})
	if more := fail(); n+more > 110 {
		t.Errorf("%d messages were delivered, and %d more, want 100", n, more)
	}
	type depth struct {
		Ready, Retries uint64
		Unknown        uint64 `json:"unknown_extents"`
	}
	if d := process.Decode[depth](t, w.server.Ask("depth", queue, "g", "-o", "json"))[0]; d.Retries < 100 || d.Retries > 110 || d.Ready+d.Retries != 300 {
		t.Errorf("depth %+v", d)
	}
	type stuck struct {
		Detail string
		Also   []string
	}
	if s := process.Decode[stuck](t, w.server.Ask("why-stuck", queue, "g", "-o", "json"))[0]; !slices.Contains(s.Also, "delayed_retry_limit") || !strings.Contains(s.Detail, "the limit is 100") {
		t.Errorf("why-stuck says %+v", s) // beside that nobody consumes
	}
	w.server.Must("", "update", "group", queue, "g", "--max-delayed-retries", "150")
	process.Eventually(t, "more are delivered", func() bool { return fail() > 0 })
	w.looks(func() bool {
		d := process.Decode[depth](t, w.server.Ask("depth", queue, "g", "-o", "json"))[0]
		return d.Retries <= 160 && d.Unknown == 0
	}, func() string { return "it has more retries than it may" })
}
