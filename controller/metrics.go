package controller

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	created prometheus.Counter
	retired prometheus.Counter
	sealed  *prometheus.CounterVec
	alarms  *prometheus.CounterVec
	shares  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		created: prometheus.NewCounter(prometheus.CounterOpts{Name: "columba_controller_extents_created_total", Help: "Extents created."}),
		retired: prometheus.NewCounter(prometheus.CounterOpts{Name: "columba_controller_extents_retired_total", Help: "Extents removed."}),
		sealed:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "columba_controller_extents_sealed_total", Help: "Extents whose end was decided, by reason."}, []string{"reason"}),
		alarms:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "columba_controller_seal_alarms_total", Help: "Seals that cannot be decided and need a look, by cause."}, []string{"cause"}),
		shares:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_controller_shares", Help: "Shares of groups given to output hosts."}),
	}
	reg.MustRegister(m.created, m.retired, m.sealed, m.alarms, m.shares)
	return m
}
