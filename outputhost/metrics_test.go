package outputhost

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core/dispatch"
)

// TestMetrics_LatenessOfARun: each time at which messages of a run were due is one observation.
func TestMetrics_LatenessOfARun(t *testing.T) {
	registry, now := prometheus.NewRegistry(), time.Unix(1e9, 0)
	m := newMetrics(registry)
	at := func(late time.Duration) int64 { return now.Add(-late).UnixMicro() }
	m.handedOut(dispatch.Run{Count: 4, Attempt: 1, Due: []int64{at(9 * time.Second), at(time.Second), at(time.Second), at(0)}}, now)
	m.handedOut(dispatch.Run{Count: 1, Attempt: 2, Due: []int64{at(time.Hour)}}, now)
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != "columba_outputhost_timer_lateness_seconds" {
			continue
		}
		if h := f.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 3 || h.GetSampleSum() != 10 {
			t.Errorf("%d observations of %g s in all, want 3 of 10 s", h.GetSampleCount(), h.GetSampleSum())
		}
		return
	}
	t.Error("there is no such metric")
}
