package controller

import (
	"context"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/majority"
	"github.com/columbamq/columba/metadata"
)

// noMajority refuses messages of a CP queue.
func (h *Host) noMajority(queue core.QueueID) error {
	v, _ := h.lacksMajority()
	advice := "publish where most of the metadata are, or start those that are away"
	switch v.State {
	case majority.Cut:
		advice = "publish where most of the metadata are, or check the network"
	case majority.Outage:
		advice = "start the Cassandra nodes that are away"
	}
	return core.Errorf(core.CodeNoMajority, "the metadata have no majority here%s, so queue %s, which is CP, takes no messages; %s", inBrackets(v.Text()), queue, advice)
}

func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// nowhere adds to an error which metadata have no majority, if this controller lacks one.
func (h *Host) nowhere(err error) error {
	if core.CodeOf(err) != core.CodeUnavailable || h.duties.Holds() {
		return err
	}
	v, lacks := h.lacksMajority()
	if !lacks && h.loaded() != nil { // that is why it holds no session lease
		return err
	}
	if !lacks {
		return core.Errorf(core.CodeUnavailable, "the metadata have no majority here, as it seems: %w", err)
	}
	return core.Errorf(core.CodeNoMajority, "the metadata have no majority here%s: %w", inBrackets(v.Text()), err)
}

// withMajority does a call that needs a majority of the metadata; CodeNoMajority if none answers within
// metadata.MajorityWait.
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
