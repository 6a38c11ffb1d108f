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
		saveFailures: counter("checkpoint_failures_total", "Writes of checkpoints that failed."),
		saveSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "columba_outputhost_checkpoint_seconds", Help: "Duration of the durable write of all checkpoints of a round.",
			Buckets: telemetry.LatencyBuckets(),
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "columba_outputhost_deliver_latency_seconds", Help: "Time from the enqueueing of a message to its first delivery; one observation for messages delivered together.",
			Buckets: telemetry.WaitBuckets(),
		}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "columba_outputhost_delayed_lateness_seconds", Help: "Time from the due time of a delayed message to its first delivery; one observation for messages that are due and delivered together.",
			Buckets: telemetry.WaitBuckets(),
		}),
		attempts: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "columba_outputhost_redelivery_attempt", Help: "Attempt number of each redelivery.",
			Buckets: telemetry.CountBuckets(),
		}),
	}
	reg.MustRegister(m.sessions, m.refused, m.saveSeconds, m.latency, m.lateness, m.attempts)
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
