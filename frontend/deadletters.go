package frontend

import (
	"context"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// ListDeadLetters answers a page of the group's dead letters, oldest first; an output host reads them.
func (s *service) ListDeadLetters(ctx context.Context, req *connect.Request[pb.ListDeadLettersRequest]) (*connect.Response[pb.ListDeadLettersResponse], error) {
	m := req.Msg
	if err := checkPage(m.GetAfter(), m.GetLimit()); err != nil {
		return nil, err
	}
	if id := m.GetId(); id != "" {
		if _, err := core.ParseID(id); err != nil {
			return nil, err
		}
	}
	_, g, err := s.group(ctx, m.GetQueue(), m.GetGroup())
	if err == nil && g.Spec.OnDLQ() {
		err = noLetters(g)
	}
	if err != nil {
		return nil, err
	}
	resp, err := ask(ctx, s.ranked(roleOutput, g.DLQ.ID), roleOutput, m, func(addr string) rpc[pb.ListDeadLettersRequest, pb.ListDeadLettersResponse] {
		return s.peers.Output(addr).ListDeadLetters
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(resp), nil
}

// Peek answers a page of the queue's stored messages, oldest first, and consumes none; an output host reads them.
func (s *service) Peek(ctx context.Context, req *connect.Request[pb.PeekRequest]) (*connect.Response[pb.PeekResponse], error) {
	m := req.Msg
	path, err := core.ParseAnyQueuePath(m.GetQueue())
	if err != nil {
		return nil, err
	}
	after := m.GetAfter()
	if m.GetTimers() { // and when it is due
		after, _, _ = strings.Cut(after, "@")
	}
	if err := checkPage(after, m.GetLimit()); err != nil {
		return nil, err
	}
	q, err := s.lookUp(ctx, path)
	if err != nil {
		return nil, err
	}
	resp, err := ask(ctx, s.ranked(roleOutput, q.ID.ID), roleOutput, m, func(addr string) rpc[pb.PeekRequest, pb.PeekResponse] {
		return s.peers.Output(addr).Peek
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(resp), nil
}

// checkPage checks the page token, a receipt, and the limit of a listing of messages.
func checkPage(after string, limit int32) error {
	if _, err := pageLimit(limit); err != nil || after == "" {
		return err
	}
	id, seq, ok := strings.Cut(after, ":")
	if _, err := strconv.ParseUint(seq, 10, 64); !ok || err != nil {
		return core.Errorf(core.CodeBadArgument, "page token is not a receipt, extent:seq")
	}
	_, err := core.ParseID(id)
	return err
}
