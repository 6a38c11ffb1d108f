package controller

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core/majority"
	"github.com/columbamq/columba/internal/telemetry"
)

type metrics struct {
	created     prometheus.Counter
	creating    prometheus.Histogram
	sealing     prometheus.Histogram
	retired     prometheus.Counter
	sealed      *prometheus.CounterVec
	alarms      *prometheus.CounterVec
	shares      prometheus.Gauge
	leftOut     prometheus.Gauge
	stores      prometheus.Gauge
	below       prometheus.Gauge
	short       prometheus.Gauge
	lost        prometheus.Gauge
	undecided   prometheus.Gauge
	repaired    prometheus.Counter
	quarantined prometheus.Counter
	orphans     prometheus.Gauge
	old         prometheus.Gauge
	unreadable  prometheus.Gauge
	skew        *prometheus.GaugeVec
	majority    *prometheus.GaugeVec
	readAll     prometheus.Histogram
	learned     prometheus.Counter

	expired          prometheus.Counter
	expiredMessages  prometheus.Counter
	retentionStopped prometheus.Gauge
	overdue          prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		created:     prometheus.NewCounter(prometheus.CounterOpts{Name: "columba_controller_extents_created_total", Help: "Extents created."}),
		creating:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: "columba_controller_extent_created_seconds", Help: "From the question of an input host to the answer with a new extent.", Buckets: telemetry.FineBuckets()}),
		sealing:     prometheus.NewHistogram(prometheus.HistogramOpts{Name: "columba_controller_extent_sealed_seconds", Help: "From the beginning of a try to seal an extent to its end, of tries that decided it.", Buckets: telemetry.FineBuckets()}),
		retired:     prometheus.NewCounter(prometheus.CounterOpts{Name: "columba_controller_extents_retired_total", Help: "Extents removed."}),
		sealed:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "columba_controller_extents_sealed_total", Help: "Extents whose end was decided, by reason."}, []string{"reason"}),
		alarms:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "columba_controller_seal_alarms_total", Help: "Seals that cannot be decided and need an operator, by cause."}, []string{"cause"}),
		shares:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_controller_shares", Help: "Shares of groups assigned to output hosts."}),
		leftOut:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_controller_shares_left_out", Help: "Shares that wait because the list of their output host is full."}),
		stores:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_controller_stores", Help: "Store hosts that answer."}),
		below:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_controller_copies_below_minimum", Help: "Sealed extents with fewer than two good copies on stores that are up, or fewer than wanted if that is one."}),
		short:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_controller_copies_missing", Help: "Sealed extents with fewer good copies on stores that are up than wanted."}),
		lost:        prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_controller_extents_lost", Help: "Sealed extents whose last records no store has any more."}),
		undecided:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_controller_extents_undecided", Help: "Extents that have stayed sealing for 30 s or longer, because their ends cannot be decided."}),
		repaired:    prometheus.NewCounter(prometheus.CounterOpts{Name: "columba_controller_copies_made_total", Help: "Copies of sealed extents made by repair."}),
		quarantined: prometheus.NewCounter(prometheus.CounterOpts{Name: "columba_controller_copies_quarantined_total", Help: "Copies that do not count any more because they are damaged or missing."}),
		old:         prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_controller_extents_unknown", Help: "Old extents on stores that have no rows in the metadata and are left as they are, because they may have been retired."}),
		unreadable:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_controller_rows_damaged", Help: "Work hints, seal rows and create rows of the metadata that cannot be decoded; the controller leaves them out."}),
		orphans:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_controller_orphans", Help: "Replicas on stores whose queue is not in the metadata."}),

		skew: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "columba_controller_clock_skew_seconds", Help: "By how much the clock of a host is ahead of the median of all hosts' clocks."}, []string{"host"}),

		majority: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "columba_controller_majority", Help: "1 for the state of this controller: it has a majority of the metadata, or is in a cut of the network or an outage of the metadata."}, []string{"state"}),

		readAll: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "columba_controller_extents_read_seconds", Help: "Readings of the rows of all extents, after the first one.", Buckets: prometheus.ExponentialBuckets(1e-3, 4, 10)}),
		learned: prometheus.NewCounter(prometheus.CounterOpts{Name: "columba_controller_extents_learned_total", Help: "Changed extents that other controllers named, and whose rows were read for that."}),

		expired:          prometheus.NewCounter(prometheus.CounterOpts{Name: "columba_controller_extents_retention_dropped_total", Help: "Extents retired by the unconsumed retention that a group had not consumed, or whose queue had no group."}),
		expiredMessages:  prometheus.NewCounter(prometheus.CounterOpts{Name: "columba_controller_messages_retention_dropped_total", Help: "Messages of extents retired by the unconsumed retention that the group furthest behind had not consumed."}),
		retentionStopped: prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_controller_retention_stopped", Help: "1 while no extent is retired because the clocks of hosts differ or too few hosts answer."}),
		overdue:          prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_controller_extents_overdue", Help: "Extents whose retention is over and that the last look at their queue left: there was no time, a removal failed, or retention is stopped."}),
	}
	m.showMajority(majority.Has)
	reg.MustRegister(m.majority, m.created, m.creating, m.sealing, m.retired, m.sealed, m.alarms, m.shares, m.leftOut, m.stores, m.below, m.short, m.lost, m.undecided, m.repaired, m.quarantined, m.orphans, m.old, m.unreadable, m.skew, m.readAll, m.learned, m.expired, m.expiredMessages, m.retentionStopped, m.overdue)
	return m
}

// showMajority makes a state the one that holds.
func (m *metrics) showMajority(is majority.State) {
	for _, s := range majority.States() {
		v := 0.0
		if s == is {
			v = 1
		}
		m.majority.WithLabelValues(string(s)).Set(v)
	}
}

// registerLease has the metrics say whether the controller holds its session lease.
func registerLease(reg prometheus.Registerer, holds func() bool) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "columba_controller_session_lease", Help: "1 while this controller holds a session lease, without which it is responsible for no queue.",
	}, func() float64 {
		if holds() {
			return 1
		}
		return 0
	}))
}
