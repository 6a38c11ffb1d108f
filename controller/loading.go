package controller

import (
	"context"
	"time"
)

// loadAgain is the pause before the extents are read again when that failed at the start.
const loadAgain = 2 * time.Second

// loadedFor is for how long after the first reading another one would find the same, if there is no other controller.
const loadedFor = 10 * time.Second

// loading is the first reading of the extents.
type loading struct {
	done  chan struct{} // closed when all are known; the others are set before
	began time.Time
	ended time.Time
	lone  bool // there was no other controller when it began
}

func newLoading() *loading { return &loading{done: make(chan struct{})} }

// wait reports whether all extents are known; not when ctx ends before.
func (l *loading) wait(ctx context.Context) bool {
	select {
	case <-l.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// firstLoad reads all extents.
func (h *Host) firstLoad(ctx context.Context) error {
	began, lone := h.deps.now(), h.lone()
	if err := h.load(ctx, time.Time{}); err != nil {
		return err
	}
	h.loading.began, h.loading.ended, h.loading.lone = began, h.deps.now(), lone
	close(h.loading.done)
	h.log.Info("the extents are known", "extents", h.extents.Count(), "took", h.loading.ended.Sub(began))
	return nil
}

// lone reports whether membership shows no other controller.
func (h *Host) lone() bool { return len(h.deps.Members.Hosts("controller")) < 2 }

// justLoaded reports whether nobody can have changed anything since the first reading: this controller becomes responsible
// for all queues a moment after it.
func (h *Host) justLoaded(now time.Time) bool {
	return h.loading.lone && h.lone() && now.Sub(h.loading.ended) < loadedFor
}

// loadLoop is firstLoad until it succeeds, or ctx ends.
func (h *Host) loadLoop(ctx context.Context) {
	for {
		err := h.gate.wait(ctx)
		if err == nil {
			err = h.firstLoad(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		h.log.Warn("the extents cannot be read yet; only extents of AP queues are made meanwhile", "err", err)
		select {
		case <-time.After(loadAgain):
		case <-ctx.Done():
			return
		}
	}
}
