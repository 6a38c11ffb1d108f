package frontend

import (
	"context"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// listing asks for a page of the messages that a group has in a queue of its own.
type listing interface {
	GetQueue() string
	GetGroup() string
	GetAfter() string
	GetLimit() int32
	GetId() string
}

// listed checks a listing and looks its group up.
func (s *service) listed(ctx context.Context, l listing) (metadata.GroupRecord, error) {
	if err := checkPage(l.GetAfter(), l.GetLimit()); err != nil {
		return metadata.GroupRecord{}, err
	}
	if id := l.GetId(); id != "" {
		if _, err := core.ParseID(id); err != nil {
			return metadata.GroupRecord{}, err
		}
	}
	_, g, err := s.groupToShow(ctx, l.GetQueue(), l.GetGroup())
	return g, err
}

// ListDeadLetters answers a page of the group's dead letters, oldest first; an output host reads them.
func (s *service) ListDeadLetters(ctx context.Context, req *connect.Request[pb.ListDeadLettersRequest]) (*connect.Response[pb.ListDeadLettersResponse], error) {
	m := req.Msg
	g, err := s.listed(ctx, m)
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
	if err := checkPage(m.GetAfter(), m.GetLimit()); err != nil {
		return nil, err
	}
	q, err := s.queueToShow(ctx, path)
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
		return core.Errorf(core.CodeBadArgument, "the page token is not one that this list has returned; leave it out to begin with the first page")
	}
	_, err := core.ParseID(id)
	return err
}
