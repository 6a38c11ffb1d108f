package controller

import (
	"context"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// noMajority refuses messages of a CP queue.
func noMajority(queue core.QueueID) error {
	return core.Errorf(core.CodeUnavailable, "the metadata have no majority here, so queue %s, which is CP, takes no messages: publish where most of the metadata are, or start those that are away", queue)
}

// withMajority does a call that needs a majority of the metadata. The error is metadata.NoMajority if none answers within metadata.MajorityWait.
func (h *Host) withMajority(ctx context.Context, call func(context.Context) error) error {
	if h.cfg.Alone {
		return call(ctx)
	}
	return h.majority.Ask(ctx, call)
}

// maker is this run, as create rows name it.
func (h *Host) maker() metadata.Maker {
	self := h.deps.Members.Self()
	return metadata.Maker{Controller: self.ID, Run: self.Run}
}
