package backlog

import (
	"context"
	"sync"
	"time"
)

// Pace spreads work over time: so many bytes a second, all callers together. Safe for concurrent use.
type Pace struct {
	perSecond int
	mu        struct {
		sync.Mutex
		free time.Time // when what was let through so far is paid
	}
}

// NewPace of so many bytes a second, above zero.
func NewPace(perSecond int) *Pace { return &Pace{perSecond: perSecond} }

// Wait lets n bytes through when their turn has come, or answers why ctx ended.
func (p *Pace) Wait(ctx context.Context, n int) error {
	now := time.Now()
	p.mu.Lock()
	turn := p.mu.free
	if turn.Before(now) {
		turn = now
	}
	p.mu.free = turn.Add(time.Duration(float64(n) / float64(p.perSecond) * float64(time.Second)))
	p.mu.Unlock()
	if !turn.After(now) {
		return nil
	}
	timer := time.NewTimer(turn.Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
