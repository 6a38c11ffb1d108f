package frontend

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/internal/telemetry"
)

type metrics struct {
	calls    *prometheus.CounterVec   // by method and code
	seconds  *prometheus.HistogramVec // by method; long polls are left out
	inFlight prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "columba_frontend_calls_total", Help: "Calls answered, by method and error code (ok when none).",
		}, []string{"method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "columba_frontend_call_seconds", Help: "Time to answer a call, by method, without Pull.",
			Buckets: telemetry.LatencyBuckets(),
		}, []string{"method"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "columba_frontend_calls_in_flight", Help: "Calls in progress, long polls included.",
		}),
	}
	reg.MustRegister(m.calls, m.seconds, m.inFlight)
	return m
}
