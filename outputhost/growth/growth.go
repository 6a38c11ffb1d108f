// Package growth measures the rate of a counter over the last seconds.
package growth

import "time"

const (
	window  = 10 * time.Second // that a rate is about, or a little more
	spacing = time.Second      // between two samples, at least
	least   = time.Second      // that a rate is about: what came at once is not taken for what goes on
	samples = int(window/spacing) + 1
)

// Meter remembers what a counter showed at the beginning of the window and since. The zero Meter has seen nothing. It
// is not safe for concurrent use.
type Meter struct {
	began time.Time // of the first sample there was
	seen  [samples]sample
	n     int // how many of them, the oldest first
}

// sample is small, since every group has a meter.
type sample struct {
	at    time.Duration // since the meter began
	total uint64
}

// Note takes what the counter shows now. It may be called at any time; once every second or two is enough.
func (m *Meter) Note(total uint64, now time.Time) {
	if m.n == 0 {
		m.began = now
	}
	at := now.Sub(m.began)
	if m.n > 0 && at-m.seen[m.n-1].at < spacing {
		return
	}
	if m.n == samples {
		copy(m.seen[:], m.seen[1:])
		m.n--
	}
	m.seen[m.n] = sample{at, total}
	m.n++
}

// PerSecond is the rate up to now, when the counter shows total: over the window, or since the counter began to grow
// within it, if that is less, but over a second at least. A counter that went back, and one that was not noted for
// longer than the window, have the rate 0.
func (m *Meter) PerSecond(total uint64, now time.Time) float64 {
	at := now.Sub(m.began)
	for i, s := range m.seen[:m.n] {
		if at-s.at >= window+spacing || total < s.total {
			continue
		}
		for _, next := range m.seen[i+1 : m.n] {
			if next.total != s.total {
				break
			}
			s = next // it stood still until then
		}
		return float64(total-s.total) / max(at-s.at, least).Seconds()
	}
	return 0
}
