package controller

import "time"

// Pauses before all shares are given again when the metadata did not take them: from the first, doubled up to the other.
const (
	minRepeat = 50 * time.Millisecond
	maxRepeat = 2 * time.Second
)

// repeat has something done again after a pause that grows while it fails. One goroutine uses it.
type repeat struct {
	timer *time.Timer
	armed bool
	pause time.Duration
}

func newRepeat() *repeat {
	r := &repeat{timer: time.NewTimer(maxRepeat)}
	r.timer.Stop()
	return r
}

// unless done, the timer fires after a pause.
func (r *repeat) unless(done bool) {
	switch {
	case done && !r.armed:
		r.pause = 0
	case !done && !r.armed:
		r.pause = min(max(2*r.pause, minRepeat), maxRepeat)
		r.timer.Reset(r.pause)
		r.armed = true
	}
}
