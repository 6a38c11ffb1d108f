package cli

import (
	"strings"
	"testing"
)

// Of several controllers some do not answer. Lists say what they lack, and what to do.
func TestSilentControllers(t *testing.T) {
	s, addr := newFakeServer(t)
	s.silent.Store(true)
	for line, want := range map[string][]string{
		"depth --prefix /lacking/": {"controller ctl-2 does not answer", "no controller has counted 3 queues just now", "ask again"},
		"delete orphans --dry-run": {"controllers ctl-2, ctl-3 do not answer", "run the command again"},
	} {
		_, stderr, code := runCLI(addr, strings.Fields(line), "")
		for _, text := range want {
			if code != 0 || !strings.Contains(stderr, text) {
				t.Errorf("%s: exit code %d, %q lacks %q", line, code, stderr, text)
			}
		}
		if strings.Contains(stderr, "no groups") {
			t.Errorf("%s says that there are no groups, although it does not know: %q", line, stderr)
		}
	}
}
