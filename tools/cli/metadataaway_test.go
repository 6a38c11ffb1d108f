package cli

import (
	"strings"
	"testing"

	"github.com/columbamq/columba/core"
)

// TestErrorLine_MetadataDoNotAnswer: the advice is about Cassandra nodes, which `columba list hosts` does not show.
func TestErrorLine_MetadataDoNotAnswer(t *testing.T) {
	for _, what := range []string{
		"look up queue /t/a: no majority of the metadata answers: not now",
		"look up queue /t/a: no copy of the metadata answers: not now",
		"look up queue /t/a: Cassandra: no hosts available in the pool",
	} {
		got := errorLine("", core.Errorf(core.CodeUnavailable, "%s", what))
		if strings.Contains(got, "list hosts") || !strings.Contains(got, "columba schema show") {
			t.Errorf("advice: %s", got)
		}
	}
	if got := errorLine("", core.Errorf(core.CodeNoMajority, "no input host took the message")); !strings.Contains(got, "columba schema show") {
		t.Errorf("advice without a majority: %s", got)
	}
	if got := errorLine("", core.Errorf(core.CodeUnavailable, "no input host")); !strings.Contains(got, "list hosts") {
		t.Errorf("advice for another error: %s", got)
	}
}
