package storehost

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/storehost/extentlog"
)

type metrics struct {
	connections   prometheus.Gauge
	appendStreams prometheus.Gauge
	readStreams   prometheus.Gauge
	appends       prometheus.Counter
	appendBytes   prometheus.Counter
	appendSeconds prometheus.Histogram
	readBytes     prometheus.Counter
	copiedBytes   prometheus.Counter
	refused       *prometheus.CounterVec
	fences        prometheus.Counter
	seals         prometheus.Counter
	removed       prometheus.Counter
	logFailures   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, h *Host) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_storehost_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "columba_storehost_" + name, Help: help})
	}
	m := &metrics{
		connections:   gauge("connections", "Data connections of input hosts and output hosts."),
		appendStreams: gauge("append_streams", "Extents open for appending."),
		readStreams:   gauge("read_streams", "Extents being read."),
		appends:       counter("appends_total", "Batches stored."),
		appendBytes:   counter("append_bytes_total", "Bytes of batches stored."),
		readBytes:     counter("read_bytes_total", "Bytes of batches sent to readers."),
		copiedBytes:   counter("copied_bytes_total", "Bytes of batches copied from other stores."),
		fences:        counter("fences_total", "Answers to fences."),
		seals:         counter("seals_total", "Extents whose end was taken over."),
		removed:       counter("removed_extents_total", "Extents removed."),
		logFailures:   counter("log_failures_total", "How often the log failed to write; it is opened anew each time."),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "columba_storehost_streams_refused_total", Help: "Streams ended by an error, by code.",
		}, []string{"code"}),
		appendSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "columba_storehost_append_seconds", Help: "From the arrival of a batch until it is durable.", Buckets: telemetry.LatencyBuckets(),
		}),
	}
	vital := func(name, help string, value func(extentlog.Vitals) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "columba_storehost_" + name, Help: help}, func() float64 { return value(h.vitals()) })
	}
	total := func(name, help string, value func(extentlog.Vitals) float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "columba_storehost_" + name, Help: help}, func() float64 { return value(h.vitals()) })
	}
	reg.MustRegister(
		total("quarantined_extents_total", "Extents quarantined since the start.", func(v extentlog.Vitals) float64 { return float64(v.Quarantined) }),
		total("scrubbed_bytes_total", "Bytes of sealed extents verified in the background.", func(v extentlog.Vitals) float64 { return float64(v.ScrubbedBytes) }),
		vital("extents", "Extents on the disk.", func(v extentlog.Vitals) float64 { return float64(v.Extents) }),
		vital("damaged_extents", "Extents on the disk that are quarantined: their bytes failed a check.", func(v extentlog.Vitals) float64 { return float64(v.DamagedExtents) }),
		vital("refused_extents", "Removed extents that get no new copy on the store: their records cannot be cut out of a damaged table.", func(v extentlog.Vitals) float64 { return float64(v.UncutExtents) }),
		vital("disk_bytes", "Bytes of the file system of the store.", func(v extentlog.Vitals) float64 { return float64(v.TotalBytes) }),
		vital("disk_free_bytes", "Bytes of it that are free.", func(v extentlog.Vitals) float64 { return float64(v.FreeBytes) }),
		vital("disk_hangs_seconds", "Time for which the oldest write in progress has waited for the disk.", func(v extentlog.Vitals) float64 { return v.Hangs.Seconds() }),
		vital("removed_bytes", "Bytes of removed extents that files with other extents still take.", func(v extentlog.Vitals) float64 { return float64(v.RemovedBytes) }),
		total("moved_bytes_total", "Bytes of batches moved to other tables to free the space of removed extents.", func(v extentlog.Vitals) float64 { return float64(v.MovedBytes) }),
		vital("log_bytes", "Bytes of the segments of the log.", func(v extentlog.Vitals) float64 { return float64(v.Log.Bytes) }),
		vital("log_free_bytes", "Bytes of the segments that are free.", func(v extentlog.Vitals) float64 { return float64(v.Log.FreeBytes) }),
		vital("log_pending_bytes", "Bytes of batches that only the log has.", func(v extentlog.Vitals) float64 { return float64(v.Log.UndrainedBytes) }),
		vital("log_age_seconds", "Time since the oldest batch that only the log has was appended.", func(v extentlog.Vitals) float64 { return v.Log.Age.Seconds() }),
		total("log_rewritten_bytes_total", "Bytes of batches written from the log into the database.", func(v extentlog.Vitals) float64 { return float64(v.Log.DrainedBytes) }),
		total("log_dropped_bytes_total", "Bytes of batches that were removed while only the log had them.", func(v extentlog.Vitals) float64 { return float64(v.Log.DroppedBytes) }),
		total("log_wait_seconds_total", "Time that appends waited for a free segment of the log.", func(v extentlog.Vitals) float64 { return v.Log.Waited.Seconds() }),
		vital("log_failed", "1 from a failure of the log until it is opened anew.", func(extentlog.Vitals) float64 {
			if h.Ready() != nil {
				return 1
			}
			return 0
		}),
	)
	reg.MustRegister(m.logFailures, m.connections, m.appendStreams, m.readStreams, m.appends, m.appendBytes, m.appendSeconds, m.readBytes,
		m.copiedBytes, m.refused, m.fences, m.seals, m.removed)
	return m
}

// vitals are zero before Start.
func (h *Host) vitals() extentlog.Vitals {
	log, err := h.extents()
	if err != nil {
		return extentlog.Vitals{}
	}
	return log.Vitals()
}

func (m *metrics) refuse(err error) { m.refused.WithLabelValues(string(core.CodeOf(err))).Inc() }
