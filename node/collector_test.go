package node

import (
	"runtime/metrics"
	"strings"
	"testing"
)

// TestTuneCollector: processes with messages, and operators who know better, keep their GOGC.
func TestTuneCollector(t *testing.T) {
	percent := func() uint64 {
		s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	before := percent()
	for _, c := range []struct {
		roles, gogc string
		tuned       bool
	}{
		{"controller", "", true},
		{"controller,frontend", "", true},
		{"controller,frontend", "200", false},
		{strings.Join(Roles, ","), "", false},
		{"frontend,outputhost", "", false},
		{"storehost", "", false},
		{"inputhost", "", false},
	} {
		t.Setenv("GOGC", c.gogc)
		want := before
		if c.tuned {
			want = controlPercent
		}
		undo := tuneCollector(strings.Split(c.roles, ","))
		if got := percent(); got != want {
			t.Errorf("roles %s, GOGC=%q: %d percent, want %d", c.roles, c.gogc, got, want)
		}
		if undo(); percent() != before {
			t.Errorf("roles %s, GOGC=%q: %d percent after undo, want %d", c.roles, c.gogc, percent(), before)
		}
	}
}
