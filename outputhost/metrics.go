package outputhost

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/telemetry"
)

type metrics struct {
	sessions     prometheus.Gauge
	refused      *prometheus.CounterVec // by code
	delivered    prometheus.Counter
	redelivered  prometheus.Counter
	deadLettered prometheus.Counter
	parked       prometheus.Counter
	readFailures prometheus.Counter
	lapses       prometheus.Counter
	mended       prometheus.Counter
	saves        prometheus.Counter
	savedBytes   prometheus.Counter
	saveFailures prometheus.Counter
	saveSeconds  prometheus.Histogram
	latency      prometheus.Histogram
	lateness     prometheus.Histogram
	attempts     prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "columba_outputhost_" + name, Help: help})
		reg.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "columba_outputhost_" + name, Help: help, Buckets: buckets})
		reg.MustRegister(h)
		return h
	}
	m := &metrics{
		sessions: prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_outputhost_consumer_connections", Help: "Connections of consumers."}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "columba_outputhost_streams_refused_total", Help: "Consumer streams refused or ended with an error, by error code.",
		}, []string{"code"}),
		delivered:    counter("messages_delivered_total", "Messages delivered, redeliveries included."),
		redelivered:  counter("messages_redelivered_total", "Messages delivered again."),
		deadLettered: counter("messages_dead_lettered_total", "Messages durable in a dead letter queue."),
		parked:       counter("messages_retry_queued_total", "Messages durable in a retry queue."),
		readFailures: counter("read_failures_total", "Read streams that were interrupted."),
		lapses:       counter("lease_expirations_total", "Times that the delivery lease expired because no controller answered."),
		mended:       counter("shares_rebuilt_total", "Shares rebuilt because a bug had damaged their state."),
		saves:        counter("checkpoints_total", "Checkpoints of shares written durably."),
		savedBytes:   counter("checkpoint_bytes_total", "Bytes of the checkpoints written durably."),
		saveFailures: counter("checkpoint_failures_total", "Writes of checkpoints that failed."),
		saveSeconds:  histogram("checkpoint_seconds", "Duration of the durable write of all checkpoints of a round.", telemetry.LatencyBuckets()),
		latency:      histogram("deliver_latency_seconds", "Time from the enqueueing of a message to its first delivery; one observation for messages delivered together.", telemetry.WaitBuckets()),
		lateness:     histogram("delayed_lateness_seconds", "Time from the due time of a delayed message to its first delivery; one observation for messages that are due and delivered together.", telemetry.WaitBuckets()),
		attempts:     histogram("redelivery_attempt", "Attempt number of each redelivery.", telemetry.CountBuckets()),
	}
	reg.MustRegister(m.sessions, m.refused)
	return m
}

// handedOut counts one run of messages.
func (m *metrics) handedOut(r dispatch.Run, now time.Time) {
	m.delivered.Add(float64(r.Count))
	if r.Attempt == 1 && len(r.Due) > 0 {
		for i, due := range r.Due {
			if i == 0 || due != r.Due[i-1] {
				m.lateness.Observe(now.Sub(time.UnixMicro(due)).Seconds())
			}
		}
	} else if r.Attempt == 1 && !r.Share.IsMerged() {
		m.latency.Observe(now.Sub(time.UnixMicro(r.Enqueued)).Seconds())
	}
	if r.Attempt == 1 {
		return
	}
	m.redelivered.Add(float64(r.Count))
	for range r.Count {
		m.attempts.Observe(float64(r.Attempt))
	}
}
