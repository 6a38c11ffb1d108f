package frontend

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// SeekGroup has a controller begin a new epoch of the group, at a point in each extent of its queue.
func (s *service) SeekGroup(ctx context.Context, req *connect.Request[pb.SeekGroupRequest]) (*connect.Response[pb.Group], error) {
	q, g, order, err := s.rewind(ctx, req)
	if err != nil {
		return nil, err
	}
	if _, err := askForLong(ctx, s, s.ranked(roleController, q.ID.ID), roleController, order, func(addr string) rpc[pb.RewindGroupRequest, pb.RewindGroupResponse] {
		return s.peers.Controller(addr).RewindGroup
	}); err != nil {
		return nil, unsure(err)
	}
	if _, g, err = s.group(ctx, q.Spec.Path, g.Spec.Name); err != nil {
		return nil, core.Partly(err, fmt.Sprintf("the seek of group %s was begun, and its state cannot be read", order.GetGroup()), "do not seek again: `columba show group` shows it later")
	}
	return connect.NewResponse(groupToProto(g)), nil
}

// PreviewSeek has a controller count what the group would get, and the group's output hosts what it has now.
func (s *service) PreviewSeek(ctx context.Context, req *connect.Request[pb.SeekGroupRequest]) (*connect.Response[pb.SeekPreview], error) {
	q, g, order, err := s.rewind(ctx, req)
	if err != nil {
		return nil, err
	}
	out, err := askForLong(ctx, s, s.ranked(roleController, q.ID.ID), roleController, order, func(addr string) rpc[pb.RewindGroupRequest, pb.SeekPreview] {
		return s.peers.Controller(addr).PreviewRewind
	})
	if err != nil {
		return nil, err
	}
	out.To = order.GetTo()
	depth, err := s.GetDepth(ctx, connect.NewRequest(&pb.GetDepthRequest{Queue: q.Spec.Path, Group: g.Spec.Name}))
	switch {
	case err != nil:
		s.log.Debug("a preview of a seek does not say what waits", "queue", q.Spec.Path, "group", g.Spec.Name, "err", err)
	case depth.Msg.GetGroups()[0].GetUnknownExtents() == 0:
		d := depth.Msg.GetGroups()[0]
		waiting := d.GetReady() + d.GetInFlight() + d.GetDelayed() + d.GetBlocked()
		out.Waiting = &waiting
	}
	return connect.NewResponse(out), nil
}

// rewind reads where a group is to go, and is the order for a controller.
func (s *service) rewind(ctx context.Context, req *connect.Request[pb.SeekGroupRequest]) (q metadata.QueueRecord, g metadata.GroupRecord, order *pb.RewindGroupRequest, err error) {
	m, now := req.Msg, s.now()
	if m.GetTo() == "" {
		return q, g, nil, core.Errorf(core.CodeBadArgument, "where to is missing; use earliest, latest, a time or a duration back like -2h")
	}
	to, err := core.ParseStart(m.GetTo(), now)
	if err != nil {
		return q, g, nil, err
	}
	if to.Mode == core.StartTime && to.At.After(now) {
		return q, g, nil, core.Errorf(core.CodeBadArgument, "%s is in the future, here it is %s; use latest, or an earlier time",
			to.At.UTC().Format(time.RFC3339Nano), now.UTC().Format(time.RFC3339))
	}
	if q, g, err = s.group(ctx, m.GetQueue(), m.GetGroup()); err != nil {
		return q, g, nil, err
	}
	return q, g, &pb.RewindGroupRequest{Queue: q.ID.ID[:], Group: g.Spec.Name, Id: g.ID.ID[:], To: to.String(), Who: req.Peer().Addr}, nil
}
