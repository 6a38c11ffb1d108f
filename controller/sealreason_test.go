package controller

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestReasonLabel_OfAnyText: who asks for a seal says why, in any words; the metrics do not grow by them.
func TestReasonLabel_OfAnyText(t *testing.T) {
	labels := make(map[string]bool)
	for i := range 1000 {
		labels[reasonLabel(fmt.Sprint("reason ", i))] = true
		labels[reasonLabel(fmt.Sprint("failure: code ", i))] = true
	}
	if len(labels) != 1 {
		t.Errorf("2000 made up reasons have %d labels, want 1", len(labels))
	}
	for _, reason := range []string{"rolled", "failure: unavailable", "purged"} {
		if got := reasonLabel(reason); got != reason {
			t.Errorf("%s has the label %s", reason, got)
		}
	}
}

func TestClipReason(t *testing.T) {
	if got := clipReason("rolled"); got != "rolled" {
		t.Errorf("got %q", got)
	}
	if got := clipReason(strings.Repeat("ä", 1<<20) + "b"); len(got) > maxReason || !utf8.ValidString(got) || len(got) < maxReason-1 {
		t.Errorf("a long reason is cut to %d bytes: %q", len(got), got)
	}
}
