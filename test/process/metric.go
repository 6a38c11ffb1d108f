package process

import (
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Metric is the sum of the series of a metric that have these labels, such as `group="g"`; without labels, of all its
// series.
func (s *Server) Metric(name string, labels ...string) (sum float64) {
	s.t.Helper()
	s.eachSeries(name, func(line string, n float64) {
		if !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(line, l) }) {
			sum += n
		}
	})
	return sum
}

// eachSeries calls f with the lines and values of a metric's series.
func (s *Server) eachSeries(name string, f func(line string, n float64)) {
	s.t.Helper()
	c := http.Client{Timeout: Patience}
	var text []byte
	Eventually(s.t, "the metrics can be read", func() bool { // a server that has its most connections refuses one
		r, err := c.Get("http://" + s.Addr + "/metrics")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		text, err = io.ReadAll(r.Body)
		return err == nil && r.StatusCode == http.StatusOK
	})
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err != nil {
			s.t.Fatalf("metric %q: %v", line, err)
		}
		f(line, n)
	}
}

// Histogram has how many observations were at most a bound, by bound. Of a metric without labels.
type Histogram map[float64]float64

// Histogram reads a histogram.
func (s *Server) Histogram(name string) Histogram {
	s.t.Helper()
	h := make(Histogram)
	s.eachSeries(name+"_bucket", func(line string, n float64) {
		_, rest, _ := strings.Cut(line, `le="`)
		bound, _, _ := strings.Cut(rest, `"`)
		le, err := strconv.ParseFloat(bound, 64)
		if err != nil {
			s.t.Fatalf("metric %q: %v", line, err)
		}
		h[le] = n
	})
	return h
}

// Since is what was observed after an earlier reading.
func (h Histogram) Since(before Histogram) Histogram {
	out := make(Histogram)
	for le, n := range h {
		out[le] = n - before[le]
	}
	return out
}

// Count of observations.
func (h Histogram) Count() int { return int(h[math.Inf(1)]) }

// Median of the observations, as if they were spread evenly between two bounds; 0 when there are none.
func (h Histogram) Median() float64 {
	half, low, below := h[math.Inf(1)]/2, 0.0, 0.0
	for _, le := range slices.Sorted(maps.Keys(h)) {
		if n := h[le]; n >= half && n > below && !math.IsInf(le, 1) {
			return low + (le-low)*(half-below)/(n-below)
		}
		low, below = le, h[le]
	}
	return 0
}

// AwaitCheckpoints waits until all that these servers have counted of groups is in durable checkpoints: a kill forgets
// nothing of it.
func AwaitCheckpoints(t testing.TB, servers ...*Server) {
	t.Helper()
	Eventually(t, "all changes are in durable checkpoints", func() bool {
		for _, s := range servers {
			if s.Metric("columba_outputhost_group_unsaved_shares") > 0 {
				return false
			}
		}
		return true
	})
}
