package outputhost

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/core/words"
	"github.com/columbamq/columba/internal/telemetry"
)

type metrics struct {
	sessions     prometheus.Gauge
	refused      *prometheus.CounterVec // by code
	delivered    prometheus.Counter
	redelivered  prometheus.Counter
	deadLettered prometheus.Counter
	retryQueued  prometheus.Counter
	readFailures prometheus.Counter
	lapses       *prometheus.CounterVec
	mended       prometheus.Counter
	saves        prometheus.Counter
	urgentSaves  prometheus.Counter
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
		lapses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "columba_outputhost_lease_expirations_total", Help: "Times that the delivery lease of a controller expired, by controller.",
		}, []string{"controller"}),
		delivered:    counter("messages_delivered_total", "Messages delivered, redeliveries included."),
		redelivered:  counter("messages_redelivered_total", "Messages delivered again."),
		deadLettered: counter("messages_dead_lettered_total", "Messages durable in a dead letter queue."),
		retryQueued:  counter("messages_retry_queued_total", "Messages durable in a retry queue."),
		readFailures: counter("read_failures_total", "Read streams that were interrupted."),
		mended:       counter("shares_rebuilt_total", "Shares rebuilt because a bug had damaged their state."),
		saves:        counter("checkpoints_total", "Checkpoints of shares written durably."),
		urgentSaves:  counter("checkpoints_urgent_total", "Checkpoints written durably that did not wait for the budget of rows."),
		savedBytes:   counter("checkpoint_bytes_total", "Bytes of the checkpoints written durably."),
		saveFailures: counter("checkpoint_failures_total", "Writes of checkpoints that failed."),
		saveSeconds:  histogram("checkpoint_seconds", "Duration of the durable write of all checkpoints of a round.", telemetry.LatencyBuckets()),
		latency:      histogram("deliver_latency_seconds", "Time from the enqueueing of a message to its first delivery; one observation for messages delivered together.", telemetry.WaitBuckets()),
		lateness:     histogram("delayed_lateness_seconds", "Time from the due time of a delayed message to its first delivery; one observation for messages that are due and delivered together.", telemetry.WaitBuckets()),
		attempts:     histogram("redelivery_attempt", "Attempt number of each redelivery.", telemetry.CountBuckets()),
	}
	reg.MustRegister(m.sessions, m.refused, m.lapses)
	return m
}

// register has the metrics of what waits for a checkpoint read at each scrape.
func (l *saveLine) register(reg prometheus.Registerer, elapsed func() time.Duration) {
	reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "columba_outputhost_checkpoints_delayed", Help: "Shares that are due for a checkpoint and wait because the cluster writes as many as it may.",
		}, func() float64 {
			due, _ := l.waiting(elapsed())
			return float64(due)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "columba_outputhost_checkpoint_wait_seconds", Help: "Age of the oldest change that waits for its turn to be in a checkpoint; 0 when none does.",
		}, func() float64 {
			_, oldest := l.waiting(elapsed())
			return oldest.Seconds()
		}))
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

// groupMetrics reads the counters of the loaded groups at each scrape. The heaviest groups have series of their own,
// the rest is summed: a scrape costs the same however many groups there are, but for a look at each.
type groupMetrics struct {
	h  *Host
	mu sync.Mutex // one scrape at a time counts the rest
	// seen is how far each group's counters were counted; rest is what the groups without series of their own have added
	// up to. It never falls.
	seen map[core.GroupID]*[events]telemetry.Grown
	rest [events]uint64
}

func newGroupMetrics(h *Host) *groupMetrics {
	return &groupMetrics{h: h, seen: make(map[core.GroupID]*[events]telemetry.Grown)}
}

var (
	groupLabels  = []string{"queue", "group"}
	groupDepth   = prometheus.NewDesc("columba_outputhost_group_messages", "Messages read and not settled, by state.", append(groupLabels, "state"), nil)
	groupOldest  = prometheus.NewDesc("columba_outputhost_group_oldest_ready_seconds", "Age of the oldest ready message of those read; 0 when none is ready.", groupLabels, nil)
	groupBreaker = prometheus.NewDesc("columba_outputhost_group_breaker_open_seconds", "Time for which the circuit breaker of the group has been open or half-open; 0 while it is closed.", groupLabels, nil)
	groupLimited = prometheus.NewDesc("columba_outputhost_group_retry_limit_reached", "1 while first deliveries of the group wait because the group is at its limit of retries; else 0.", groupLabels, nil)
	groupUnsaved = prometheus.NewDesc("columba_outputhost_group_unsaved_shares", "Shares with changes that are in no durable checkpoint yet.", groupLabels, nil)
	groupEvents  = prometheus.NewDesc("columba_outputhost_group_events_total", "Events of deliveries, by kind.", append(groupLabels, "event"), nil)
)

// Describe implements prometheus.Collector.
func (m *groupMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{groupDepth, groupOldest, groupBreaker, groupLimited, groupUnsaved, groupEvents} {
		out <- d
	}
}

// events is how many kinds there are, in the order of words.Events.
const events = len(words.Events)

// groupSeries is what one group, or the rest, says.
type groupSeries struct {
	id           core.GroupID
	queue, group string
	depth        [len(depthStates)]int
	oldest       float64 // seconds
	opened       float64 // seconds: for how long the breaker is open
	limited      float64 // 1: the limit of retries holds first deliveries back
	unsaved      int
	events       [events]uint64
	rate         float64 // messages acked per second
}

func (g *group) series(now time.Time) groupSeries {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, d := g.mu.rules.Counters(), g.mu.rules.Depth()
	x := groupSeries{
		id: g.id, queue: g.queuePath, group: g.name, unsaved: g.unsavedSharesLocked(),
		depth: [...]int{d.Ready, d.InFlight, d.Delayed + d.RetryQueueing, d.DeadLettering, d.Blocked},
		events: [events]uint64{
			c.Delivered, c.Redelivered, c.Acked, c.Nacked, c.LockTimeouts, c.Rejected, c.Returned, c.Dead, c.RetryQueued, c.Dropped, c.Skipped, c.Expired, c.NotCounted, c.Cancelled,
		},
		rate: g.ackRateLocked(now),
	}
	if state, since := g.mu.rules.Breaker(); state != dispatch.BreakerClosed {
		x.opened = now.Sub(since).Seconds()
	}
	if g.mu.rules.RetryLimit().Reached {
		x.limited = 1
	}
	if d.OldestReady > 0 {
		x.oldest = now.Sub(time.UnixMicro(d.OldestReady)).Seconds()
	}
	return x
}

// weight: groups with an open breaker, or at their limit of retries, first, then by messages read and not settled and
// messages acked in a minute; a group that never did anything comes last.
func (x groupSeries) weight() float64 {
	w := 60 * x.rate
	for _, n := range x.depth {
		w += float64(n)
	}
	if x.opened > 0 || x.limited > 0 {
		w += 1e9
	}
	if x.events[0] > 0 {
		w += 0.5
	}
	return w
}

// add has the rest say what a group would: sums, and the greatest age.
func (x *groupSeries) add(o groupSeries) {
	for i, n := range o.depth {
		x.depth[i] += n
	}
	x.oldest, x.opened, x.limited = max(x.oldest, o.oldest), max(x.opened, o.opened), max(x.limited, o.limited)
	x.unsaved += o.unsaved
}

// Collect implements prometheus.Collector.
func (m *groupMetrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.h.deps.Now()
	groups := m.h.groupList()
	all := make([]groupSeries, len(groups))
	for i, g := range groups {
		all[i] = g.series(now)
	}
	first, rest := telemetry.Heaviest(all, m.h.cfg.Series, groupSeries.weight, func(x groupSeries) string { return x.queue + " " + x.group })
	there := make(map[core.GroupID]bool, len(all))
	for _, x := range first {
		there[x.id] = true
		m.grown(x)
		x.send(out)
	}
	sum := groupSeries{queue: telemetry.Rest, group: telemetry.Rest}
	for _, x := range rest {
		there[x.id] = true
		sum.add(x)
		for i, n := range m.grown(x) {
			m.rest[i] += n
		}
	}
	if sum.events = m.rest; len(rest) > 0 || m.rest != [events]uint64{} {
		sum.send(out)
	}
	for id := range m.seen { // of groups that were unloaded
		if !there[id] {
			delete(m.seen, id)
		}
	}
}

// grown is by how much the counters of a group have grown since the last scrape.
func (m *groupMetrics) grown(x groupSeries) (by [events]uint64) {
	seen := m.seen[x.id]
	if seen == nil {
		seen = new([events]telemetry.Grown)
		m.seen[x.id] = seen
	}
	for i, n := range x.events {
		by[i] = seen[i].Since(n)
	}
	return by
}

// send says it all. An event that never happened has no series, but for the two that always do.
func (x *groupSeries) send(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, v float64, more ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, append([]string{x.queue, x.group}, more...)...)
	}
	gauge(groupBreaker, x.opened)
	gauge(groupLimited, x.limited)
	gauge(groupUnsaved, float64(x.unsaved))
	gauge(groupOldest, x.oldest)
	for i, n := range x.depth {
		gauge(groupDepth, float64(n), depthStates[i])
	}
	for i, n := range x.events {
		if n > 0 || words.Events[i] == "delivered" || words.Events[i] == "acked" {
			out <- prometheus.MustNewConstMetric(groupEvents, prometheus.CounterValue, float64(n), x.queue, x.group, words.Events[i])
		}
	}
}

var depthStates = [...]string{words.Ready, words.InFlight, words.Delayed, words.DeadLettering, words.Blocked}
