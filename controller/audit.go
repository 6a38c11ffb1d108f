package controller

import (
	"context"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// audit records what an operator asked for. Before it is done the result is "asked": what cannot be recorded is not done. The function
// it answers records how it ended.
func (h *Host) audit(ctx context.Context, who, what, object string) (ended func(ctx context.Context, err error), err error) {
	now := h.deps.now()
	key := metadata.AuditKey(now, core.NewID(now))
	r := metadata.AuditRecord{Who: who, What: what, Object: object, When: now, Result: "asked"}
	if err := metadata.Write(ctx, h.deps.Meta, metadata.Audit, key, r, now, metadata.AuditTTL, metadata.Quorum); err != nil {
		return nil, core.Errorf(core.CodeOf(err), "record who asked for it: %w", err)
	}
	h.log.Warn("an operator asked", "who", who, "what", what, "object", object)
	return func(ctx context.Context, err error) {
		r.Result = "ok"
		if err != nil {
			r.Result = string(core.CodeOf(err))
		}
		at := h.deps.now()
		if !at.After(now) {
			at = now.Add(metadata.Tick)
		}
		if err := metadata.Write(context.WithoutCancel(ctx), h.deps.Meta, metadata.Audit, key, r, at, metadata.AuditTTL, metadata.Quorum); err != nil {
			h.log.Warn("how it ended is not recorded", "what", what, "object", object, "err", err)
		}
	}, nil
}
