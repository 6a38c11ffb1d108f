package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestReportMetadata_JudgesMedians has one pair of three that is bad, and then two.
func TestReportMetadata_JudgesMedians(t *testing.T) {
	did := func(messages, cpu float64) (s metadataSide) {
		p := phase{messages: messages, seconds: 1, servers: roleCPU{output: cpu}, client: 7} // the client's CPU does not count
		for i := range s.loads {
			s.loads[i] = metadataLoads{published: p, consumed: p, steady: phase{messages: 1000, seconds: 1, servers: roleCPU{output: cpu}}}
		}
		return s
	}
	good := metadataPair{embedded: did(1000, 1), cassandra: did(750, 1.05)}
	bad := metadataPair{embedded: did(1000, 1), cassandra: did(740, 1.06)}
	for _, c := range []struct {
		pairs []metadataPair
		want  []string
	}{
		{[]metadataPair{good, bad, good}, []string{"published, Cassandra ÷ embedded | 0.75 × | ≥ 0.75 | PASS", "consumed, Cassandra ÷ embedded | 0.75 × | ≥ 0.75 | PASS", "CPU at 10000/s, Cassandra ÷ embedded | 1.05 × | ≤ 1.05 | PASS"}},
		{[]metadataPair{bad, good, bad}, []string{"published, Cassandra ÷ embedded | 0.74 × | ≥ 0.75 | FAIL", "consumed, Cassandra ÷ embedded | 0.74 × | ≥ 0.75 | FAIL", "CPU at 10000/s, Cassandra ÷ embedded | 1.06 × | ≤ 1.05 | FAIL"}},
	} {
		r := &rig{report: newReport(&bytes.Buffer{}, t.TempDir(), "metadata")}
		r.reportMetadata(c.pairs)
		text := r.report.markdown(time.Now())
		for _, size := range []string{"1024", "100"} {
			for _, want := range c.want {
				if want = "| " + size + " bytes, " + want; !strings.Contains(text, want) {
					t.Errorf("no line that begins with %q in:\n%s", want, text)
				}
			}
		}
	}
}
