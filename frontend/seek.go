package frontend

import (
	"context"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// SeekGroup has a controller begin a new epoch of the group, at a point in each extent of its queue.
func (s *service) SeekGroup(ctx context.Context, req *connect.Request[pb.SeekGroupRequest]) (*connect.Response[pb.Group], error) {
	m, now := req.Msg, s.now()
	if m.GetTo() == "" {
		return nil, core.Errorf(core.CodeBadArgument, "where to is missing; use earliest, latest, a time or a duration back like -2h")
	}
	to, err := core.ParseStart(m.GetTo(), now)
	if err != nil {
		return nil, err
	}
	if to.Mode == core.StartTime && to.At.After(now) {
		return nil, core.Errorf(core.CodeBadArgument, "%s is in the future, here it is %s; use latest, or an earlier time",
			to.At.UTC().Format(time.RFC3339Nano), now.UTC().Format(time.RFC3339Nano))
	}
	q, g, err := s.group(ctx, m.GetQueue(), m.GetGroup())
	if err != nil {
		return nil, err
	}
	order := &pb.RewindGroupRequest{Queue: q.ID.ID[:], Group: g.Spec.Name, To: string(to.Mode), Who: req.Peer().Addr}
	if to.Mode == core.StartTime {
		order.To = to.At.UTC().Format(time.RFC3339Nano)
	}
	if _, err := ask(ctx, s.ranked(roleController, q.ID.ID), roleController, order, func(addr string) rpc[pb.RewindGroupRequest, pb.RewindGroupResponse] {
		return s.peers.Controller(addr).RewindGroup
	}); err != nil {
		return nil, unsure(err)
	}
	if _, g, err = s.group(ctx, q.Spec.Path, g.Spec.Name); err != nil {
		return nil, err
	}
	return connect.NewResponse(groupToProto(g)), nil
}
