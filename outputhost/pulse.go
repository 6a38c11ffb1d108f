package outputhost

import (
	"context"
	"sync/atomic"
	"time"
)

// pulse notices that this process stood still: its shares may be another host's since. Until they are confirmed nothing is handed out.
// Safe for concurrent use.
type pulse struct {
	base  time.Time // with a monotonic reading, so that setting the clock is no pause
	last  atomic.Int64
	doubt atomic.Bool
}

const (
	beatEvery = 500 * time.Millisecond
	maxPause  = 3 * time.Second
	// confirmTimeout bounds how long nothing is handed out while no controller answers: without one, the shares stay where they are.
	confirmTimeout = 5 * time.Second
	confirmRetry   = 200 * time.Millisecond
)

func newPulse(now time.Time) *pulse { return &pulse{base: now} }

// steady reports whether the process has not stood still since its shares were confirmed last.
func (p *pulse) steady(now time.Time) bool {
	return !p.doubt.Load() && now.Sub(p.base)-time.Duration(p.last.Load()) < maxPause
}

// beat keeps the pulse until ctx ends, and has the shares confirmed after each pause.
func (h *Host) beat(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for !h.pulse.steady(h.deps.Now()) {
			h.pulse.doubt.Store(true)
			h.pulse.set(h.deps.Now())
			h.confirm(ctx)
			if now := h.deps.Now(); h.pulse.since(now) < confirmTimeout+maxPause { // else it stood still once more
				h.pulse.set(now)
				h.pulse.doubt.Store(false)
			}
			if ctx.Err() != nil {
				return
			}
			for _, g := range h.groupList() {
				g.pump()
			}
		}
		h.pulse.set(h.deps.Now())
	}
}

func (p *pulse) set(now time.Time) { p.last.Store(int64(now.Sub(p.base))) }
func (p *pulse) since(now time.Time) time.Duration {
	return now.Sub(p.base) - time.Duration(p.last.Load())
}

// confirm asks for the list of shares until it is there, for a while.
func (h *Host) confirm(ctx context.Context) {
	h.log.Warn("this process stood still; nothing is handed out until its shares are confirmed")
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	for {
		err := h.askShares(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			h.log.Warn("no controller confirms the shares of this host; it goes on with those it had", "err", err)
			return
		case <-time.After(confirmRetry):
		}
	}
}
