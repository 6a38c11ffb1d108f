package outputhost

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/telemetry"
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
		if f.GetName() != "columba_outputhost_delayed_lateness_seconds" {
			continue
		}
		if h := f.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 3 || h.GetSampleSum() != 10 {
			t.Errorf("%d observations of %g s in all, want 3 of 10 s", h.GetSampleCount(), h.GetSampleSum())
		}
		return
	}
	t.Error("there is no such metric")
}

// scrape answers the values of one metric by queue and the last label.
func scrape(t testing.TB, m prometheus.Collector, name string) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, x := range f.GetMetric() {
			key := ""
			for _, l := range x.GetLabel() {
				if l.GetName() != "group" {
					key = l.GetValue() + " " + key
				}
			}
			out[key] = valueOf(x)
		}
	}
	return out
}

func valueOf(m *dto.Metric) float64 {
	if m.GetCounter() != nil {
		return m.GetCounter().GetValue()
	}
	return m.GetGauge().GetValue()
}

// TestMetrics_HeaviestGroups: the groups with most to do have series of their own, at the bound; the rest is summed,
// and the sum of a counter never falls when another group becomes one of the first.
func TestMetrics_HeaviestGroups(t *testing.T) {
	b := newHarness(t)
	b.cfg.Series = 2
	m := newGroupMetrics(b.Host)
	var list []*pb.Assignment
	for range 4 {
		_, a := b.group()
		list = append(list, a)
	}
	if err := b.give(1, list...); err != nil {
		t.Fatal(err)
	}
	groups := b.groupList()
	work := func(g *group, n int) { // n messages are read, and one is handed out
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, s := range g.mu.shares {
			r := dispatch.Records{Base: s.rules.ReadFrom(), Offsets: []uint32{0}}
			for range n {
				r.Offsets = append(r.Offsets, 0)
			}
			if err := s.rules.Offer(r, b.deps.Now()); err != nil {
				t.Fatal(err)
			}
			g.mu.rules.Want(dispatch.Credit{Messages: 1 << 20, Bytes: 1 << 40}, true)
			g.mu.rules.Take(1, dispatch.Credit{Messages: 1, Bytes: 1 << 20}, b.deps.Now(), nil)
		}
	}
	for i, g := range groups {
		work(g, i+1) // 1, 2, 3, 4
	}
	const depth, done = "columba_outputhost_group_messages", "columba_outputhost_group_events_total"
	ready := func(g *group) string { return "ready " + g.queuePath + " " }
	if got := scrape(t, m, depth); got[ready(groups[3])] != 3 || got[ready(groups[2])] != 2 || got["ready "+telemetry.Rest+" "] != 1 || len(got) != 3*5 {
		t.Fatalf("of 4 groups with 0 to 3 ready messages, two of which have series: %v", got)
	}
	rest := telemetry.Rest + " delivered "
	if got := scrape(t, m, done); got[rest] != 2 {
		t.Fatalf("the rest was delivered %v, want 2", got[rest])
	}
	work(groups[0], 10) // it becomes the first; the third one joins the rest
	if got := scrape(t, m, done); got[rest] != 2 || got[groups[0].queuePath+" delivered "] != 2 {
		t.Fatalf("after a group has left the rest: %v, want 2 delivered in all to the rest as before", got)
	}
	work(groups[1], 1) // still of the rest
	if got := scrape(t, m, done); got[rest] != 3 {
		t.Fatalf("the rest was delivered %v, want 3", got[rest])
	}
}

// BenchmarkMetrics_Groups is a scrape of as many groups as one process is meant for.
func BenchmarkMetrics_Groups(b *testing.B) {
	h := newHarness(b)
	for i := range 14_500 {
		g := &group{h: h.Host, queuePath: fmt.Sprintf("/tenant/queue%d", i), name: "g"}
		g.id.ID[0], g.id.ID[1] = byte(i), byte(i>>8)
		g.mu.rules = dispatch.NewGroup(core.GroupSpec{}.WithDefaults())
		g.mu.closed = true
		h.mu.Lock()
		h.mu.groups[g.id] = g
		h.mu.Unlock()
	}
	defer func() {
		h.mu.Lock()
		clear(h.mu.groups)
		h.mu.Unlock()
	}()
	m := newGroupMetrics(h.Host)
	b.ResetTimer()
	for b.Loop() {
		n := len(scrape(b, m, "columba_outputhost_group_messages"))
		if n != len(depthStates)*(telemetry.MostSeries+1) {
			b.Fatal(n)
		}
	}
}
