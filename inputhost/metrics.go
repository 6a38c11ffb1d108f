package inputhost

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/wire"
)

// limitHost is the label value for Config.MaxInFlight, beside those of tenant.Limit.
const limitHost = "host"

type metrics struct {
	sessions  prometheus.Gauge
	messages  prometheus.Counter
	bytes     prometheus.Counter
	outcomes  [3]prometheus.Counter // by wire.AckStatus
	overLimit prometheus.Counter    // refused because of a limit, which outcomes leaves out
	refused   *prometheus.CounterVec
	seals     *prometheus.CounterVec
	evicted   *prometheus.CounterVec
	latency   prometheus.Histogram

	throttled *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		sessions: prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_inputhost_publisher_connections", Help: "Connections of publishers."}),
		messages: prometheus.NewCounter(prometheus.CounterOpts{Name: "columba_inputhost_messages_total", Help: "Messages received."}),
		bytes:    prometheus.NewCounter(prometheus.CounterOpts{Name: "columba_inputhost_message_bytes_total", Help: "Encoded bytes of the messages received."}),
		refused:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "columba_inputhost_streams_refused_total", Help: "Publish streams ended by an error, by code."}, []string{"code"}),
		seals:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "columba_inputhost_seals_total", Help: "Extents of this host that were sealed, by reason."}, []string{"reason"}),
		evicted:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "columba_inputhost_stores_evicted_total", Help: "Stores that were too slow or stuck: all extents of this host on them were sealed."}, []string{"reason"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "columba_inputhost_publish_latency_seconds", Help: "From the arrival of a run of messages to its answer.",
			Buckets: telemetry.LatencyBuckets(),
		}),
	}
	m.throttled = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "columba_inputhost_throttled_messages_total", Help: "Messages refused for now, by the limit of their namespace, their queue or the host."}, []string{"limit"})
	reg.MustRegister(m.throttled, m.sessions, m.messages, m.bytes, m.refused, m.seals, m.evicted, m.latency)
	outcomes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "columba_inputhost_answers_total", Help: "Messages answered, by outcome."}, []string{"outcome"})
	reg.MustRegister(outcomes)
	for status, name := range map[wire.AckStatus]string{wire.AckOK: "ok", wire.AckRefused: "refused", wire.AckUnknown: "unknown"} {
		m.outcomes[status] = outcomes.WithLabelValues(name)
	}
	m.overLimit = outcomes.WithLabelValues("throttled")
	return m
}

func (m *metrics) received(count, bytes int) {
	m.messages.Add(float64(count))
	m.bytes.Add(float64(bytes))
}

func (m *metrics) answered(o writer.Outcome, c writer.Chunk, now time.Time) {
	counter := m.outcomes[o.Status]
	if o.Status == wire.AckRefused && o.Code == core.CodeThrottled {
		counter = m.overLimit
	}
	counter.Add(float64(c.Count))
	m.latency.Observe(now.Sub(c.Arrived).Seconds())
}
