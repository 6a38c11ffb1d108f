package backlog

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/internal/telemetry"
)

var (
	groupLabels = []string{"queue", "group"}
	queueLabels = []string{"queue"}

	descMessages = prometheus.NewDesc("columba_controller_backlog_messages", "Messages that a group has not settled, without dead letters.", groupLabels, nil)
	descBytes    = prometheus.NewDesc("columba_controller_backlog_bytes", "Bytes of the messages that a group has not settled, an estimate.", groupLabels, nil)
	descOldest   = prometheus.NewDesc("columba_controller_backlog_oldest_seconds", "Age of the oldest ready message of a group.", groupLabels, nil)
	descUnknown  = prometheus.NewDesc("columba_controller_backlog_unknown_shares", "Shares of groups that could not be counted completely: there may be more messages.", nil, nil)
	descStale    = prometheus.NewDesc("columba_controller_backlog_stale_seconds", "Time since the backlogs were last counted.", nil, nil)

	descPublished      = prometheus.NewDesc("columba_controller_queue_published_messages_total", "Messages stored in a queue.", queueLabels, nil)
	descPublishedBytes = prometheus.NewDesc("columba_controller_queue_published_bytes_total", "Encoded bytes of the messages stored in a queue.", queueLabels, nil)
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descMessages, descBytes, descOldest, descUnknown, descStale, descPublished, descPublishedBytes} {
		out <- d
	}
}

// Collect implements prometheus.Collector. Before the first round there are no backlogs.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	now := c.cfg.Now()
	rows, ended, unknown := c.book.rows(c.mine)
	if !ended.IsZero() {
		gauge(descStale, max(0, now.Sub(ended).Seconds()))
		gauge(descUnknown, float64(unknown))
		first, rest := telemetry.Heaviest(rows, c.cfg.Series, func(r *row) float64 { return float64(r.Messages()) }, func(r *row) string { return r.path + " " + r.group })
		for _, r := range first {
			r.collect(gauge, r.path, r.group, now)
		}
		if len(rest) > 0 {
			sum := &row{}
			for _, r := range rest {
				sum.Add(r.Depth)
			}
			sum.collect(gauge, telemetry.Rest, telemetry.Rest, now)
		}
	}
	counter := func(path string, p position) {
		out <- prometheus.MustNewConstMetric(descPublished, prometheus.CounterValue, float64(p.messages), path)
		out <- prometheus.MustNewConstMetric(descPublishedBytes, prometheus.CounterValue, float64(p.bytes), path)
	}
	own, rest := c.book.published()
	for _, p := range own {
		counter(p.path, p.position)
	}
	if rest.messages > 0 {
		counter(telemetry.Rest, rest)
	}
}

func (r *row) collect(gauge func(d *prometheus.Desc, v float64, labels ...string), queue, group string, now time.Time) {
	gauge(descMessages, float64(r.Messages()), queue, group)
	gauge(descBytes, float64(r.Bytes), queue, group)
	gauge(descOldest, float64(r.age(now))/1000, queue, group)
}

// published are the counters of what was published: of the queues with series of their own, two of one path only while
// one of them is deleted; and of the rest.
func (b *book) published() (own []published, rest position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	byPath := make(map[string]int, len(b.series.own))
	for _, p := range b.series.own {
		if i, twice := byPath[p.path]; twice {
			own[i].add(p.position)
			continue
		}
		byPath[p.path] = len(own)
		own = append(own, *p)
	}
	return own, b.series.rest
}
