package frontend

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
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

// ListParked answers a page of what waits in the group's retry queue, oldest first; an output host reads it.
func (s *service) ListParked(ctx context.Context, req *connect.Request[pb.ListParkedRequest]) (*connect.Response[pb.ListParkedResponse], error) {
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
	if err != nil {
		return nil, err
	}
	resp, err := ask(ctx, s.ranked(roleOutput, g.ID.ID), roleOutput, m, func(addr string) rpc[pb.ListParkedRequest, pb.ListParkedResponse] {
		return s.peers.Output(addr).ListParked
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

// readersOf are the groups that read a queue, which has that id; none when it was deleted.
func (s *service) readersOf(ctx context.Context, path string, queue core.QueueID) (out []metadata.GroupRecord, err error) {
	id := queue
	if of, name, ok := core.SplitRetryPath(path); ok {
		var g metadata.GroupRecord
		_, g, err = s.group(ctx, of, name)
		out, id = []metadata.GroupRecord{g}, g.Retry
	} else {
		var q metadata.QueueRecord
		q, out, err = s.groups(ctx, path)
		id = q.ID
	}
	switch {
	case core.CodeOf(err) == core.CodeNotFound || core.CodeOf(err) == core.CodeBadName || err == nil && id != queue:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return out, nil
}

// explainParked finds out where a message stands that a group has parked, the last time, and reports whether there is one.
func (s *service) explainParked(ctx context.Context, group metadata.GroupRecord, m *pb.MessageLife, out *pb.Standing) bool {
	id := m.GetMessage().GetId()
	if id == "" || group.Retry.IsZero() {
		return false
	}
	req := &pb.ListParkedRequest{Queue: group.Spec.Queue, Group: group.Spec.Name, Id: id, Due: true}
	found, err := ask(ctx, s.ranked(roleOutput, group.ID.ID), roleOutput, req, func(addr string) rpc[pb.ListParkedRequest, pb.ListParkedResponse] {
		return s.peers.Output(addr).ListParked
	})
	if err != nil {
		s.log.Debug("cannot look for a parked message", "queue", group.Spec.Queue, "group", group.Spec.Name, "err", err)
		return false
	}
	var last *pb.ParkedMessage
	for _, p := range found.GetMessages() {
		if p.GetOrigin() == m.Receipt && p.GetAttempts() >= last.GetAttempts() {
			last = p
		}
	}
	at, err := core.ParseReceipt(last.GetReceipt())
	if err != nil || last == nil {
		return false
	}
	now, err := s.standingAt(ctx, group, at)
	if err != nil || now.GetState() == string(dispatch.PlaceDone) {
		return false
	}
	out.State, out.Parked, out.Attempts, out.LastFailure, out.LastText, out.Owner = now.GetState(), last.Receipt, last.Attempts, last.Reason, last.Error, now.GetOwner()
	out.Until, out.Holder = now.GetUntil(), now.GetHolder()
	if now.GetAttempts() > 0 { // it has come back
		out.Attempts, out.LastFailure, out.LastText = now.Attempts, now.LastFailure, now.LastText
	} else if last.GetUntil().AsTime().After(s.now()) {
		out.State, out.Until = string(dispatch.PlaceParked), last.Until
	}
	return true
}

// standingAt is where a message of a queue that the group reads stands in it.
func (s *service) standingAt(ctx context.Context, group metadata.GroupRecord, at core.Receipt) (*pb.Standing, error) {
	e, err := s.findExtent(ctx, at.Extent)
	if err != nil {
		return nil, err
	}
	l := &length{Extent: e}
	if err := s.readSeals(ctx, []*length{l}); err != nil {
		return nil, err
	}
	return s.standing(ctx, group, at, l)
}

// workAndParked is work, that in the group's retry queue too.
func (s *service) workAndParked(ctx context.Context, group metadata.GroupRecord, extents []*length) (work, error) {
	parked, err := s.parked(ctx, group)
	if err != nil {
		return work{}, err
	}
	return s.work(ctx, group, slices.Concat(extents, parked))
}

// parked are the lengths of a group's retry queue; none before a message was parked first.
func (s *service) parked(ctx context.Context, group metadata.GroupRecord) ([]*length, error) {
	if group.Retry.IsZero() {
		return nil, nil
	}
	return s.lengths(ctx, group.Retry, group.ID)
}
