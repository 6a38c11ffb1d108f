package cassandra

import (
	"context"
	"math/rand/v2"
	"time"
)

// Bounds of the pause between two tries of one change.
const (
	minPause = 5 * time.Millisecond
	maxPause = 250 * time.Millisecond
)

// pacer makes the tries of a call rarer.
type pacer struct{ last time.Duration }

// wait sleeps until the next try; the error is why ctx ended.
func (p *pacer) wait(ctx context.Context) error {
	p.last = min(max(2*p.last, minPause), maxPause)
	timer := time.NewTimer(jitter(p.last))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// jitter is a time between a half of d and one and a half.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(max(d, 1)) }
