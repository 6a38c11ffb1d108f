package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

const (
	// hearEvery is how often it is looked whether output hosts have confirmed their lists.
	hearEvery = 20 * time.Millisecond
	// hearFor is how long output hosts have for it: one that hears nothing for so long hands out nothing without asking
	// first.
	hearFor = 10 * time.Second
	// hearAgain is the pause before the controllers are asked again which of them is responsible for a queue.
	hearAgain = 200 * time.Millisecond
	// hearWithin bounds all of it. A hand-over takes 8 s.
	hearWithin = 30 * time.Second
)

// Heard implements operations.Owner. Each queue's lists are made by the controller that is responsible for the queue.
func (d deadLetters) Heard(ctx context.Context, changed []core.ExtentID, queues ...core.QueueID) (unheard []core.HostID, err error) {
	ctx, cancel := context.WithTimeout(ctx, hearWithin)
	defer cancel()
	hosts, errs := make([][]core.HostID, len(queues)), make([]error, len(queues))
	var wg sync.WaitGroup
	for i, queue := range queues {
		wg.Go(func() { hosts[i], errs[i] = d.h.heard(ctx, queue, changed) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	unheard = slices.Concat(hosts...)
	slices.Sort(unheard)
	return slices.Compact(unheard), nil
}

// heard has output hosts hear of extents that were changed, by the lists of one queue. It answers the hosts that one
// controller has waited for, without a break, for hearFor.
func (h *Host) heard(ctx context.Context, queue core.QueueID, changed []core.ExtentID) ([]core.HostID, error) {
	var waiting core.RunID // the controller that has named hosts …
	var since time.Time    // … since then
	for {
		began := h.deps.now()
		by, unheard, err := h.hear(ctx, queue, changed)
		if err == nil && len(unheard) == 0 {
			return nil, nil
		}
		if by != waiting {
			waiting, since = by, began
		}
		if err == nil {
			if h.deps.now().Sub(since) >= hearFor {
				return unheard, nil
			}
			err = core.Errorf(core.CodeDeadline, "output hosts %v have not confirmed it yet", unheard)
		}
		select {
		case <-time.After(hearAgain):
		case <-ctx.Done():
			return nil, core.Errorf(core.CodeUnavailable, "output hosts may not have heard of it in the lists of queue %s: %w", queue, err)
		}
	}
}

// hear asks the controller that is responsible for a queue to have its lists heard: this one, or else one of the
// others. It answers the run that did.
func (h *Host) hear(ctx context.Context, queue core.QueueID, changed []core.ExtentID) (by core.RunID, unheard []core.HostID, err error) {
	self := h.deps.Members.Self()
	cctx, cancel := context.WithTimeout(ctx, hearFor)
	unheard, err = h.heardHere(cctx, queue, changed)
	cancel()
	if err == nil {
		return self.Run, unheard, nil
	}
	if core.CodeOf(err) != core.CodeMoved {
		return by, nil, err
	}
	for _, m := range h.otherControllers(queue) {
		if unheard, err = h.heardThere(ctx, m, queue, changed); err == nil {
			return m.Run, unheard, nil
		}
	}
	return by, nil, err
}

// heardThere asks another controller. A short wait tells one that hangs from one that waits for output hosts.
func (h *Host) heardThere(ctx context.Context, m membership.Host, queue core.QueueID, changed []core.ExtentID) (unheard []core.HostID, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout+time.Second)
	defer cancel()
	req := &pb.HearSharesRequest{Queue: queue.ID[:], Extents: make([][]byte, len(changed)), WaitMs: uint32(h.cfg.CallTimeout.Milliseconds())}
	for i, id := range changed {
		req.Extents[i] = id.ID[:]
	}
	resp, err := h.deps.Peers.Controller(m.Address).HearShares(ctx, connect.NewRequest(req))
	if err != nil {
		err = convert.FromRPC(err)
		return nil, core.Errorf(core.CodeOf(err), "controller %s: %w", m.ID, err)
	}
	for _, id := range resp.Msg.Unheard {
		unheard = append(unheard, core.HostID(id))
	}
	return unheard, nil
}

func (s *service) HearShares(ctx context.Context, req *connect.Request[pb.HearSharesRequest]) (*connect.Response[pb.HearSharesResponse], error) {
	var queue core.QueueID
	var err error
	if queue.ID, err = core.IDFromBytes(req.Msg.GetQueue()); err != nil {
		return nil, convert.RPCError(err)
	}
	changed := make([]core.ExtentID, len(req.Msg.GetExtents()))
	for i, b := range req.Msg.GetExtents() {
		if changed[i].ID, err = core.IDFromBytes(b); err != nil {
			return nil, convert.RPCError(err)
		}
	}
	if req.Msg.GetWaitMs() == 0 {
		if err := s.h.takeInHere(ctx, queue, changed); err != nil {
			return nil, convert.RPCError(err)
		}
		return connect.NewResponse(&pb.HearSharesResponse{}), nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(time.Duration(req.Msg.GetWaitMs())*time.Millisecond, hearFor))
	defer cancel()
	unheard, err := s.h.heardHere(ctx, queue, changed)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	out := &pb.HearSharesResponse{}
	for _, id := range unheard {
		out.Unheard = append(out.Unheard, string(id))
	}
	return connect.NewResponse(out), nil
}

// takeInHere takes in extents that were changed, and has the groups of a queue looked at soon that this controller is
// responsible for. CodeMoved when another controller is responsible for the queue.
func (h *Host) takeInHere(ctx context.Context, queue core.QueueID, changed []core.ExtentID) error {
	if !h.duties.Responsible(queue.ID) {
		return core.Errorf(core.CodeMoved, "this controller is not responsible for queue %s; ask another one", queue)
	}
	if err := h.learn(ctx, changed); err != nil {
		return core.Errorf(core.CodeOf(err), "read the extents that were changed: %w", err)
	}
	h.retirement.Changed(queue)
	h.shares.touch(queue)
	return nil
}

// heardHere takes in extents that were changed, and waits until the output hosts that are there have confirmed the
// lists of a queue that this controller is responsible for. When ctx ends it answers those that have not. CodeMoved
// when another controller is responsible for the queue, or may have been meanwhile.
func (h *Host) heardHere(ctx context.Context, queue core.QueueID, changed []core.ExtentID) (unheard []core.HostID, err error) {
	handovers := h.duties.Handovers()
	stays := func() bool { return h.duties.Responsible(queue.ID) && h.duties.Handovers() == handovers }
	if err := h.takeInHere(ctx, queue, changed); err != nil {
		return nil, err
	}
	tick := time.NewTicker(hearEvery)
	defer tick.Stop()
	var marked []catalog.Marked
	for listed := false; ; {
		if !listed && h.mayTell(queue) && h.shares.listed(queue) {
			listed = true
			marked = h.shares.Mark(queue, h.outputRuns())
			h.push()
		}
		unheard = h.unheard(marked)
		switch {
		case !stays():
			return nil, core.Errorf(core.CodeMoved, "queue %s was handed over; ask again which controller is responsible for it", queue)
		case listed && len(unheard) == 0:
			return nil, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if !listed {
				return nil, core.Errorf(core.CodeUnavailable, "output hosts may not have heard of it yet: the lists of queue %s are being made", queue)
			}
			return unheard, nil
		}
	}
}

// outputRuns are the output hosts that are there.
func (h *Host) outputRuns() (out []catalog.HostRun) {
	for _, m := range h.hosts.live("outputhost") {
		out = append(out, catalog.HostRun{Host: m.ID, Run: m.Run})
	}
	return out
}

// unheard are the output hosts that are there and have not confirmed a list.
func (h *Host) unheard(marked []catalog.Marked) (out []core.HostID) {
	waiting := h.shares.Unheard(marked)
	for _, o := range h.outputRuns() {
		if slices.Contains(waiting, o) {
			out = append(out, o.Host)
		}
	}
	return out
}
