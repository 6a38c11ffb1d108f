package outputhost

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	sessions     prometheus.Gauge
	delivered    prometheus.Counter
	redelivered  prometheus.Counter
	deadLettered prometheus.Counter
	readFailures prometheus.Counter
	saveFailures prometheus.Counter
	saveSeconds  prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "columba_outputhost_" + name, Help: help})
		reg.MustRegister(c)
		return c
	}
	m := &metrics{
		sessions:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_outputhost_consumer_sessions", Help: "Connections of consumers."}),
		delivered:    counter("messages_delivered_total", "Messages handed out, redeliveries included."),
		redelivered:  counter("messages_redelivered_total", "Messages handed out again."),
		deadLettered: counter("messages_dead_lettered_total", "Messages moved to a dead letter queue."),
		readFailures: counter("read_failures_total", "Read streams that were interrupted."),
		saveFailures: counter("checkpoint_failures_total", "Writes of checkpoints that failed."),
		saveSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "columba_outputhost_checkpoint_seconds", Help: "Durable write of all checkpoints of a round.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
	}
	reg.MustRegister(m.sessions, m.saveSeconds)
	return m
}

// groupMetrics reads the counters of the loaded groups at each scrape.
type groupMetrics struct{ h *Host }

var (
	groupLabels = []string{"queue", "group"}
	groupDepth  = prometheus.NewDesc("columba_outputhost_group_messages", "Messages read and not settled, by state.", append(groupLabels, "state"), nil)
	groupEvents = prometheus.NewDesc("columba_outputhost_group_events_total", "What became of deliveries.", append(groupLabels, "event"), nil)
)

func (m groupMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- groupDepth
	out <- groupEvents
}

func (m groupMetrics) Collect(out chan<- prometheus.Metric) {
	for _, g := range m.h.groupList() {
		g.mu.Lock()
		d, c := g.mu.rules.Depth(), g.mu.rules.Counters()
		g.mu.Unlock()
		for state, n := range map[string]int{"ready": d.Ready, "in_flight": d.InFlight, "delayed": d.Delayed, "dying": d.Dying, "blocked": d.Blocked} {
			out <- prometheus.MustNewConstMetric(groupDepth, prometheus.GaugeValue, float64(n), g.queuePath, g.name, state)
		}
		for event, n := range map[string]uint64{
			"delivered": c.Delivered, "redelivered": c.Redelivered, "acked": c.Acked, "nacked": c.Nacked, "expired": c.Expired,
			"rejected": c.Rejected, "returned": c.Returned, "dead_lettered": c.Dead, "dropped": c.Dropped,
		} {
			out <- prometheus.MustNewConstMetric(groupEvents, prometheus.CounterValue, float64(n), g.queuePath, g.name, event)
		}
	}
}
