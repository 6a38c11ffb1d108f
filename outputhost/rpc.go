package outputhost

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// service answers the output host's RPCs.
type service struct{ h *Host }

func (s *service) Assign(ctx context.Context, req *connect.Request[pb.AssignmentList]) (*connect.Response[pb.AssignResponse], error) {
	if err := s.h.assign(ctx, req.Msg); err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(&pb.AssignResponse{}), nil
}

func (s *service) Pull(ctx context.Context, req *connect.Request[pb.PullRequest]) (*connect.Response[pb.PullResponse], error) {
	most, wait := int(req.Msg.MaxMessages), req.Msg.Wait.AsDuration()
	if most == 0 {
		most = 1
	}
	if most < 1 || most > maxPull || wait < 0 || wait > maxPullWait {
		return nil, convert.RPCError(core.Errorf(core.CodeBadArgument, "a pull takes 1 … %d messages and waits up to %s", maxPull, maxPullWait))
	}
	g, err := s.h.lookUp(ctx, req.Msg.Queue, req.Msg.Group)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	defer g.release()
	messages, err := g.pull(ctx, most, wait)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(&pb.PullResponse{Messages: messages}), nil
}

func (s *service) Settle(ctx context.Context, req *connect.Request[pb.SettleRequest]) (*connect.Response[pb.SettleResponse], error) {
	return connect.NewResponse(&pb.SettleResponse{Failures: s.h.settleTokens(ctx, req.Msg)}), nil
}

func (s *service) GetDepth(ctx context.Context, req *connect.Request[pb.GetDepthRequest]) (*connect.Response[pb.GetDepthResponse], error) {
	names := []string{req.Msg.Group}
	if req.Msg.Group == "" {
		names = nil
		id, err := s.h.queueID(ctx, req.Msg.Queue)
		if err != nil {
			return nil, convert.RPCError(err)
		}
		for r, err := range metadata.All[metadata.GroupRecord](ctx, s.h.deps.Meta, metadata.Groups, id.String(), metadata.One) {
			if err != nil {
				return nil, convert.RPCError(err)
			}
			if r.Value.Started && r.Value.Spec.Status != core.StatusDeleted {
				names = append(names, r.Value.Spec.Name)
			}
		}
	}
	out := &pb.GetDepthResponse{}
	for _, name := range names {
		g, err := s.h.lookUp(ctx, req.Msg.Queue, name)
		if err != nil {
			return nil, convert.RPCError(err)
		}
		d, err := g.depth(ctx)
		g.release()
		if err != nil {
			return nil, convert.RPCError(err)
		}
		out.Groups = append(out.Groups, d)
	}
	return connect.NewResponse(out), nil
}

func (s *service) WhyStuck(ctx context.Context, req *connect.Request[pb.WhyStuckRequest]) (*connect.Response[pb.WhyStuckResponse], error) {
	g, err := s.h.lookUp(ctx, req.Msg.Queue, req.Msg.Group)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	defer g.release()
	out, err := g.whyStuck(ctx)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(out), nil
}

func (s *service) GetStanding(ctx context.Context, req *connect.Request[pb.StandingRequest]) (*connect.Response[pb.Standing], error) {
	at, err := core.ParseReceipt(req.Msg.Receipt)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	g, err := s.h.lookUp(ctx, req.Msg.Queue, req.Msg.Group)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	defer g.release()
	out, err := g.standing(at)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(out), nil
}

func (s *service) Peek(ctx context.Context, req *connect.Request[pb.PeekRequest]) (*connect.Response[pb.PeekResponse], error) {
	out, err := s.h.peek(ctx, req.Msg)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(out), nil
}

func (s *service) ListDeadLetters(ctx context.Context, req *connect.Request[pb.ListDeadLettersRequest]) (*connect.Response[pb.ListDeadLettersResponse], error) {
	out, err := s.h.listLetters(ctx, req.Msg)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(out), nil
}

func unixMicro(us int64) *timestamppb.Timestamp { return convert.Time(time.UnixMicro(us)) }
