package controller

import (
	"context"
	"errors"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/majority"
)

// DescribeMajority answers from memory.
func (s *service) DescribeMajority(context.Context, *connect.Request[pb.DescribeMajorityRequest]) (*connect.Response[pb.DescribeMajorityResponse], error) {
	out := &pb.DescribeMajorityResponse{}
	if s.h.cfg.Alone {
		return connect.NewResponse(out), nil
	}
	w := s.h.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.mu.verdict
	out.State, out.Since = string(v.State), timestamppb.New(w.mu.since)
	out.Silent, out.HaveMajority = textsOf(v.Silent), textsOf(v.Having)
	out.Lacks = !w.mu.heard || !w.mu.lacking.IsZero() // one that has just started proves no majority
	out.AnsweredMs = uint64(max(0, time.Since(w.mu.answered).Milliseconds()))
	return connect.NewResponse(out), nil
}

func textsOf(ids []core.HostID) (out []string) {
	for _, id := range ids {
		out = append(out, string(id))
	}
	return out
}

// askOther asks a controller whether it has a majority, where this one has lacked one since a time; refused: nobody
// listens at its machine. A controller that was answered before that time may lack one by now. One of a version that
// does not know the question has no answer to give.
func (h *Host) askOther(ctx context.Context, address string, lacking time.Time) (said majority.Answer, refused bool) {
	asked := time.Now()
	resp, err := h.deps.Peers.Controller(address).DescribeMajority(ctx, connect.NewRequest(&pb.DescribeMajorityRequest{}))
	switch {
	case connect.IsWireError(err), connect.CodeOf(err) == connect.CodeUnimplemented:
		return majority.Lacks, false
	case err != nil:
		return majority.Silent, errors.Is(err, syscall.ECONNREFUSED)
	case resp.Msg.Lacks:
		return majority.Lacks, false
	case asked.Add(-time.Duration(resp.Msg.AnsweredMs) * time.Millisecond).After(lacking):
		return majority.Holds, false
	}
	return majority.Unsure, false
}
