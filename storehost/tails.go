package storehost

import (
	"context"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// tailsAtOnce bounds the extents of one GetTails.
const tailsAtOnce = 1000

// GetTails reads what is in memory: it costs a lock for each extent.
func (s *service) GetTails(_ context.Context, req *connect.Request[pb.GetTailsRequest]) (*connect.Response[pb.GetTailsResponse], error) {
	ids := req.Msg.Extents
	if len(ids) > tailsAtOnce {
		return nil, convert.RPCError(core.Errorf(core.CodeTooLarge, "%d extents in one call; at most %d are allowed", len(ids), tailsAtOnce))
	}
	log, err := s.h.extents()
	if err != nil {
		return nil, convert.RPCError(err)
	}
	out := &pb.GetTailsResponse{Tails: make([]*pb.GetTailsResponse_Tail, len(ids))}
	for i, b := range ids {
		id, err := extentID(b)
		if err != nil {
			return nil, convert.RPCError(err)
		}
		state, err := log.State(id)
		switch {
		case core.CodeOf(err) == core.CodeNotFound:
			out.Tails[i] = &pb.GetTailsResponse_Tail{Absent: true}
		case err != nil:
			return nil, convert.RPCError(err)
		case state.Damaged:
			out.Tails[i] = &pb.GetTailsResponse_Tail{Damaged: true}
		default:
			out.Tails[i] = &pb.GetTailsResponse_Tail{Committed: uint64(state.Committed), Last: uint64(state.Last), Bytes: state.Bytes}
		}
	}
	return connect.NewResponse(out), nil
}
