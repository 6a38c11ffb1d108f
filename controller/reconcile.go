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
		reason := ""
		switch {
		case e.state == core.ExtentOpen && h.writerGone(e):
			reason = "input host restarted"
		case e.state == core.ExtentSealing:
			reason = "resumed"
		case e.state.HasEnd():
			h.run(func(ctx context.Context) { h.tellAgain(ctx, e) })
			continue
		default:
			continue
		}
		h.run(func(ctx context.Context) {
			if _, err := h.seal(ctx, e.Extent, 0, reason, false); err != nil && ctx.Err() == nil {
				h.log.Warn("extent cannot be sealed yet", "extent", e.ID, "err", err)
			}
		})
	}
	if err := h.assign(ctx); err != nil && ctx.Err() == nil {
		h.log.Warn("cannot assign shares", "err", err)
	}
}

// writerGone: the run of the input host that alone may write to the extent is over. Membership is a hint; sealing an extent whose
// writer lives after all is safe, it then continues in another one.
func (h *Host) writerGone(e extent) bool {
	m, ok := membership.Find(h.deps.Members, e.Input)
	return !ok || m.Run != e.InputRun
}
