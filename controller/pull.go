package controller

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
)

// versionsPerPage bounds an answer to ListAssignments.
const versionsPerPage = 1000

// queuesPerAnswer bounds the queues of which one GetAssignments settles the first.
const queuesPerAnswer = 1000

func (s *service) ListAssignments(ctx context.Context, req *connect.Request[pb.ListAssignmentsRequest]) (*connect.Response[pb.ListAssignmentsResponse], error) {
	var after core.QueueID
	owner, err := s.h.ownerOf(ctx, req.Msg.Owner, req.Msg.Run)
	if err == nil && len(req.Msg.After) > 0 {
		after.ID, err = core.IDFromBytes(req.Msg.After)
	}
	if err != nil {
		return nil, convert.RPCError(err)
	}
	page, more := s.h.versions(owner, after, versionsPerPage)
	out := &pb.ListAssignmentsResponse{Lists: make([]*pb.QueueVersion, len(page)), More: more}
	for i, v := range page {
		out.Lists[i] = &pb.QueueVersion{Queue: v.Queue.ID[:], Version: convert.ListVersionToProto(v.Version)}
	}
	return connect.NewResponse(out), nil
}

// versions is a page of the lists of an output host that this controller may name: after a lapse of its session it has
// lists of queues that another one may have given away, until a round forgets them. An empty page is the last one.
func (h *Host) versions(owner catalog.HostRun, after core.QueueID, limit int) (page []catalog.QueueVersion, more bool) {
	for {
		page, more = h.shares.Versions(owner, after, limit)
		if more {
			after = page[len(page)-1].Queue
		}
		page = slices.DeleteFunc(page, func(v catalog.QueueVersion) bool { return !h.mayTell(v.Queue) })
		if len(page) > 0 || !more {
			return page, more
		}
	}
}

func (s *service) GetAssignments(ctx context.Context, req *connect.Request[pb.GetAssignmentsRequest]) (*connect.Response[pb.GetAssignmentsResponse], error) {
	owner, err := s.h.ownerOf(ctx, req.Msg.Owner, req.Msg.Run)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	asked := req.Msg.Known[:min(len(req.Msg.Known), queuesPerAnswer)]
	known := make([]catalog.QueueVersion, len(asked))
	for i, k := range asked {
		if known[i].Queue.ID, err = core.IDFromBytes(k.GetQueue()); err == nil {
			known[i].Version, err = convert.ListVersion(k.GetVersion())
		}
		if err != nil {
			return nil, convert.RPCError(err)
		}
	}
	page := s.h.page(owner, known)
	return connect.NewResponse(&pb.GetAssignmentsResponse{Lists: page.lists, Done: uint32(page.done)}), nil
}

// ownerOf is the run of an output host that asks for its lists, once they have all that this controller should know.
func (h *Host) ownerOf(ctx context.Context, host string, run []byte) (owner catalog.HostRun, err error) {
	if owner.Host, err = core.ParseHostID(host); err != nil {
		return owner, err
	}
	if owner.Run.ID, err = core.IDFromBytes(run); err != nil {
		return owner, err
	}
	if err := h.waitLoaded(ctx); err != nil {
		return owner, err
	}
	if !h.shares.isComplete() {
		poke(h.shares.wake)
	}
	select {
	case <-h.shares.complete:
		return owner, nil
	case <-ctx.Done():
	case <-h.tasks.Context().Done():
	}
	return owner, core.Errorf(core.CodeUnavailable, "the controller has not read all queues yet")
}
