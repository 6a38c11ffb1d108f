package process

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Metric is the sum of the series of a metric that have these labels, such as `group="g"`; without labels, of all its series.
func (s *Server) Metric(name string, labels ...string) (sum float64) {
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
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(line, l) }) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err != nil {
			s.t.Fatalf("metric %q: %v", line, err)
		}
		sum += n
	}
	return sum
}

// AwaitCheckpoints waits until all that these servers have counted of groups is in durable checkpoints: a kill forgets nothing of it.
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
