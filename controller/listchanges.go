package controller

import (
	"context"
	"maps"
	"sync"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// changesPage bounds the changes of one answer.
const changesPage = 1000

func (s *service) ListChanges(_ context.Context, req *connect.Request[pb.ListChangesRequest]) (*connect.Response[pb.ListChangesResponse], error) {
	self, before := s.h.deps.Members.Self().Run, core.RunID{}
	if len(req.Msg.GetRun()) > 0 {
		id, err := core.IDFromBytes(req.Msg.GetRun())
		if err != nil {
			return nil, convert.RPCError(err)
		}
		before.ID = id
	}
	if s.h.cfg.Alone {
		return nil, convert.RPCError(core.Errorf(core.CodeUnsupported, "this controller has embedded metadata, and there is no other beside it"))
	}
	part := s.h.changes.since(req.Msg.GetAfter(), changesPage)
	if before != self {
		part = changesPart{counter: s.h.changes.last()}
	}
	out := &pb.ListChangesResponse{Run: self.ID[:], Counter: part.counter, Complete: part.complete, More: part.more}
	for _, x := range part.changed {
		c := &pb.ChangedExtent{Extent: x.id.ID[:]}
		if !x.queue.IsZero() {
			c.Queue = x.queue.ID[:]
		}
		out.Changed = append(out.Changed, c)
	}
	return connect.NewResponse(out), nil
}

// changesOf reads the answer of another controller to what it changed after a counter.
func changesOf(run core.RunID, after uint64, resp *pb.ListChangesResponse) (part changesPart, err error) {
	is, err := core.IDFromBytes(resp.GetRun())
	switch {
	case err != nil:
		return part, err
	case is != run.ID:
		return part, core.Errorf(core.CodeMoved, "another run answers, %s", is)
	case len(resp.GetChanged()) > changesPage:
		return part, core.Errorf(core.CodeTooLarge, "%d changes in one answer, the limit is %d", len(resp.GetChanged()), changesPage)
	case !resp.GetComplete():
		return changesPart{counter: resp.GetCounter()}, nil
	case resp.GetCounter() < after, resp.GetMore() && (resp.GetCounter() == after || len(resp.GetChanged()) == 0):
		return part, core.Errorf(core.CodeBadArgument, "%d changes after %d end at %d, more: %t", len(resp.GetChanged()), after, resp.GetCounter(), resp.GetMore())
	}
	part = changesPart{counter: resp.GetCounter(), complete: true, more: resp.GetMore(), changed: make([]changed, len(resp.GetChanged()))}
	for i, x := range resp.GetChanged() {
		to := &part.changed[i]
		if to.id.ID, err = core.IDFromBytes(x.GetExtent()); err == nil && len(x.GetQueue()) > 0 {
			to.queue.ID, err = core.IDFromBytes(x.GetQueue())
		}
		if err != nil {
			return changesPart{}, err
		}
	}
	return part, nil
}

// heardChanges are how far the changes of each run were heard. It is reloadLoop's.
type heardChanges map[core.RunID]uint64

// listChanges asks all other controllers, side by side, what they have changed since they were asked last. The changes
// of this controller are among the answers: some may still come, and of some it does not know, because a call has
// failed.
func (h *Host) listChanges(ctx context.Context, heard heardChanges) (out answered) {
	var mu sync.Mutex
	var calls sync.WaitGroup
	out = answered{same: h.others.since(), all: true} // since is read before the members: they may change meanwhile
	there := make(map[core.RunID]bool)
	self := h.deps.Members.Self()
	takeIn := func(run core.RunID, all []changed, part changesPart, err error) {
		mu.Lock()
		defer mu.Unlock()
		out.changed, out.others = append(out.changed, all...), out.others+len(all)
		if err != nil {
			out.all = false
			return
		}
		out.missed = out.missed || !part.complete
		heard[run] = part.counter
	}
	for _, m := range h.deps.Members.Hosts("controller") {
		if m.Run == self.Run {
			continue
		}
		there[m.Run] = true
		mu.Lock() // answers of the others are taken in meanwhile
		after, known := heard[m.Run]
		mu.Unlock()
		calls.Go(func() {
			all, part, err := h.changesOfOther(ctx, m, after, known)
			if err != nil && ctx.Err() == nil {
				h.log.Debug("a controller does not say which extents it has changed; the rows of all extents are read", "controller", m.ID, "err", err)
			}
			takeIn(m.Run, all, part, err)
		})
	}
	calls.Wait()
	out.all = out.all && len(there) > 0
	own := h.changes.since(heard[self.Run], mostChanges)
	out.changed = append(out.changed, own.changed...)
	takeIn(self.Run, nil, own, nil)
	maps.DeleteFunc(heard, func(run core.RunID, _ uint64) bool { return run != self.Run && !there[run] })
	return out
}

// changesOfOther asks another controller, page after page, and answers the last one; known: it was asked before. After
// an error it is asked for all of it again.
func (h *Host) changesOfOther(ctx context.Context, m membership.Host, after uint64, known bool) (all []changed, part changesPart, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	for {
		req := &pb.ListChangesRequest{After: after}
		if known {
			req.Run = m.Run.ID[:]
		}
		resp, err := h.deps.Peers.Controller(m.Address).ListChanges(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, part, convert.FromRPC(err)
		}
		if part, err = changesOf(m.Run, after, resp.Msg); err != nil {
			return nil, part, err
		}
		all = append(all, part.changed...)
		if len(all) > mostFollowed { // a controller that makes changes faster than they are listed
			part.complete, part.more = false, false
		}
		if !part.more {
			return all, part, nil
		}
		after = part.counter
	}
}
