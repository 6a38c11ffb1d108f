package controller

import (
	"context"
	"time"
)

// loadAgain is the pause before the extents are read again when that failed at the start.
const loadAgain = 2 * time.Second

// loading is the first reading of the extents.
type loading struct {
	began time.Time     // of the reading that came to its end; set before done is closed
	done  chan struct{} // closed when all are known
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
	began := h.deps.now()
	if err := h.load(ctx, time.Time{}); err != nil {
		return err
	}
	h.loading.began = began
	close(h.loading.done)
	h.log.Info("the extents are known", "extents", h.extents.Count(), "took", h.deps.now().Sub(began))
	return nil
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
