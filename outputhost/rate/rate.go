// Package rate owns how fast a counter has grown lately.
package rate

import "time"

const (
	window  = 10 * time.Second // that a rate is about, or a little more
	spacing = 2 * time.Second  // between two samples, at least
	samples = int(window/spacing) + 1
)

// Meter remembers what a counter showed at the beginning of the window and since. The zero Meter has seen nothing. It is not safe for
// concurrent use.
type Meter struct {
	seen [samples]sample
	n    int // how many of them, the oldest first
}

type sample struct {
	at    time.Time
	total uint64
}

// Note takes what the counter shows now. It may be called at any time; once every two seconds is enough.
func (m *Meter) Note(total uint64, now time.Time) {
	if m.n > 0 && now.Sub(m.seen[m.n-1].at) < spacing {
		return
	}
	if m.n == samples {
		copy(m.seen[:], m.seen[1:])
		m.n--
	}
	m.seen[m.n] = sample{now, total}
	m.n++
}

// PerSecond is the rate over the window, up to now, when the counter shows total; before the meter has seen a second, it is 0.
func (m *Meter) PerSecond(total uint64, now time.Time) float64 {
	for _, s := range m.seen[:m.n] {
		passed := now.Sub(s.at)
		if passed < window+spacing && passed >= time.Second && total >= s.total {
			return float64(total-s.total) / passed.Seconds()
		}
	}
	return 0
}
