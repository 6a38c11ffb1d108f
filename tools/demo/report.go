package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// Report is the demo's summary.
type Report struct {
	Verified         bool    `json:"verified"`
	Published        int     `json:"published"`
	PublishSeconds   float64 `json:"publish_seconds"`
	Results          int     `json:"results"`
	DuplicateResults int     `json:"duplicate_results"`
	Bytes            int64   `json:"bytes"`
	Lines            int64   `json:"lines"`
	Broken           int     `json:"broken"`
	DeadLetters      int     `json:"dead_letters"`
	DuplicateLetters int     `json:"duplicate_dead_letters"`
	Deliveries       int     `json:"parse_deliveries"`
	Redelivered      int     `json:"parse_redelivered"`
	WorkersKilled    int     `json:"workers_killed"`
	ServersKilled    int     `json:"servers_killed"`
	RestartSeconds   float64 `json:"restart_seconds"`
	Seconds          float64 `json:"seconds"`
	LatencyMillis    struct {
		P50 float64 `json:"p50"`
		P99 float64 `json:"p99"`
		Max float64 `json:"max"`
	} `json:"latency_ms"`

	began time.Time
}

// latencies sets the percentiles of task to result.
func (r *Report) latencies(all []time.Duration) {
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	at := func(q float64) float64 {
		return float64(all[int(q*float64(len(all)-1))]) / float64(time.Millisecond)
	}
	r.LatencyMillis.P50, r.LatencyMillis.P99, r.LatencyMillis.Max = at(0.5), at(0.99), at(1)
}

func (r *Report) write(out io.Writer, format string) error {
	if format == "json" {
		return json.NewEncoder(out).Encode(r)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("tasks published", "%d in %.1f s", r.Published, r.PublishSeconds)
	row("results", "%d, equal to a direct walk: %d bytes, %d lines", r.Results, r.Bytes, r.Lines)
	row("dead letters", "%d, equal to the %d files the parser rejects, each after %d failed deliveries", r.DeadLetters, r.Broken, maxDeliveries)
	row("killed -9", "%d server (ready again in %.2f s), %d worker", r.ServersKilled, r.RestartSeconds, r.WorkersKilled)
	row("duplicates", "%d results, %d dead letters, explained by the kills", r.DuplicateResults, r.DuplicateLetters)
	row("parse deliveries", "%d, of which %d again", r.Deliveries, r.Redelivered)
	row("throughput", "%.0f tasks/s through two groups in %.1f s", float64(r.Results)/r.Seconds, r.Seconds)
	row("task → result", "p50 %.1f ms, p99 %.1f ms, max %.1f ms (includes waiting in the backlog and one server restart)", r.LatencyMillis.P50, r.LatencyMillis.P99, r.LatencyMillis.Max)
	row("verified", "%t", r.Verified)
	return w.Flush()
}
