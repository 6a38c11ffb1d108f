package backlog

import "time"

const (
	window  = 10 * time.Second // that a rate is about, or a little more
	samples = 4
)

// meter remembers what a counter showed lately. The zero meter has seen nothing.
type meter struct {
	seen [samples]sample
	n    int // how many of them, the oldest first
}

type sample struct {
	at    time.Time
	total uint64
}

// begin takes what the counter showed before it began to grow.
func (m *meter) begin(total uint64, at time.Time) {
	m.seen[0], m.n = sample{at, total}, 1
}

// note takes what the counter shows now, round by round, after begin. It reports whether the counter has grown within
// the window: if not, no more has to be noted until it grows.
func (m *meter) note(total uint64, now time.Time) (grows bool) {
	if m.n == samples {
		copy(m.seen[:], m.seen[1:])
		m.n--
	}
	m.seen[m.n] = sample{now, total}
	m.n++
	if m.seen[0].total == total {
		m.n = 0
	}
	return m.n > 0
}

// perSecond is the rate up to the last note: over the window, or since the counter began to grow.
func (m *meter) perSecond() float64 {
	if m.n < 2 {
		return 0
	}
	last := m.seen[m.n-1]
	from := m.seen[0]
	for _, s := range m.seen[:m.n-1] {
		if last.at.Sub(s.at) >= window {
			from = s
		}
	}
	if passed := last.at.Sub(from.at).Seconds(); passed > 0 {
		return float64(last.total-from.total) / passed
	}
	return 0
}
