package controller

import (
	"context"
	"log/slog"

	"github.com/columbamq/columba/metadata"
)

// audit records what an operator asked for. Before it is done the result is "asked": what cannot be recorded is not
// done. The function it answers records how it ended. The log tells it at the level: a warning is a change that gives
// up messages which a store may still have.
func (h *Host) audit(ctx context.Context, level slog.Level, who, what, object string) (ended func(ctx context.Context, err error), err error) {
	record, err := metadata.BeginAudit(ctx, h.deps.Meta, who, what, object, h.deps.now)
	if err != nil {
		return nil, err
	}
	h.log.Log(ctx, level, "an operator changes the cluster", "who", who, "what", what, "object", object)
	return func(ctx context.Context, err error) {
		if err := record(ctx, err); err != nil {
			h.log.Warn("the result of a change is not recorded in the audit", "what", what, "object", object, "err", err)
		}
	}, nil
}
