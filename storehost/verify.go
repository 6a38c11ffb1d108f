package storehost

import (
	"context"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
)

// verify reads every byte of a replica, after others that are being verified: so much reading takes the disk from appends. The log decides by what it
// finds whether the replica is quarantined. CodeDeadline: nothing is decided.
func (h *Host) verify(ctx context.Context, id core.ExtentID) (extentlog.Verified, error) {
	log, err := h.extents()
	if err != nil {
		return extentlog.Verified{}, err
	}
	if err := h.verifying.Acquire(ctx, 1); err != nil {
		return extentlog.Verified{}, core.Errorf(core.CodeDeadline, "other extents are being verified; verify extent %s later: %w", id, context.Cause(ctx))
	}
	defer h.verifying.Release(1)
	return log.Verify(ctx, id)
}
