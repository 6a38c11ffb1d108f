package controller

import (
	"context"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// reconcile compares what should be with what is, by level: extents whose writer is gone are sealed, seals that did not finish go
// on, replicas that were not told their end are told, shares get owners.
func (h *Host) reconcile(ctx context.Context) {
	for _, e := range h.extents.unfinished() {
		switch {
		case e.state == core.ExtentOpen && h.writerGone(e):
			h.sealSoon(e.Extent, "input host restarted")
		case e.state == core.ExtentSealing:
			h.sealSoon(e.Extent, "resumed")
		case e.state.HasEnd():
			h.look(e.ID, func(ctx context.Context) { h.tellAgain(ctx, e) })
		}
	}
	if err := h.assign(ctx); err != nil && ctx.Err() == nil {
		h.log.Warn("cannot assign shares", "err", err)
	}
}

// sealSoon seals an extent that nobody waits for.
func (h *Host) sealSoon(e core.Extent, reason string) {
	h.look(e.ID, func(ctx context.Context) {
		if _, err := h.seal(ctx, e, 0, reason, false); err != nil && ctx.Err() == nil {
			h.log.Warn("extent cannot be sealed yet", "extent", e.ID, "err", err)
		}
	})
}

// look starts f, which looks after an extent, unless the last such is still under way: what hangs must not pile up.
func (h *Host) look(id core.ExtentID, f func(ctx context.Context)) {
	h.mu.Lock()
	_, busy := h.mu.looking[id]
	h.mu.looking[id] = struct{}{}
	h.mu.Unlock()
	if busy {
		return
	}
	done := func() {
		h.mu.Lock()
		delete(h.mu.looking, id)
		h.mu.Unlock()
	}
	if !h.tasks.Go(func(ctx context.Context) { defer done(); f(ctx) }) {
		done()
	}
}

// writerGone: the run of the input host that alone may write to the extent is over. Membership is a hint; sealing an extent whose
// writer lives after all is safe, it then continues in another one.
func (h *Host) writerGone(e extent) bool {
	m, ok := membership.Find(h.deps.Members, e.Input)
	return !ok || m.Run != e.InputRun
}
