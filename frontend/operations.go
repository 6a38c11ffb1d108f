package frontend

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// maxRate bounds the rate of an operation, messages per second: above, no bound is meant.
const maxRate = 1_000_000

// StartOperation has a controller merge or purge a group's dead letters, or without a group purge a queue.
func (s *service) StartOperation(ctx context.Context, req *connect.Request[pb.StartOperationRequest]) (*connect.Response[pb.Operation], error) {
	m := req.Msg
	switch metadata.OperationKind(m.GetKind()) {
	case metadata.OperationMerge, metadata.OperationPurge:
	default:
		return nil, core.Errorf(core.CodeBadArgument, "kind %.80q is not merge or purge", m.GetKind())
	}
	if m.GetRate() > maxRate {
		return nil, core.Errorf(core.CodeBadArgument, "rate %d is not in 0 … %d messages per second", m.GetRate(), maxRate)
	}
	selection, err := checkedSelection(m.GetSelection())
	if err == nil && m.GetSelection() != nil && selection.IsAll() { // the name of its condition may be misspelled
		err = core.Errorf(core.CodeBadArgument, "the selection is empty, so it selects no dead letters; give it a condition (ids, dead_before, dead_after, reasons, min_attempts or max_attempts), or leave the selection out to %s all", m.GetKind())
	}
	if err != nil {
		return nil, err
	}
	id := core.NewID(s.now())
	if m.GetId() != "" {
		if id, err = core.ParseID(m.GetId()); err != nil {
			return nil, err
		}
	}
	object, err := s.operationObject(ctx, m)
	if err != nil {
		return nil, err
	}
	order := &pb.BeginOperationRequest{
		Operation: &pb.StartOperationRequest{
			Id: id.String(), Kind: m.GetKind(), Queue: m.GetQueue(), Group: m.GetGroup(), Rate: m.GetRate(), Selection: convert.SelectionToProto(selection),
		},
		Object: object.ID[:],
		Who:    req.Peer().Addr,
	}
	if _, err := ask(ctx, s.ranked(roleController, object.ID), roleController, order, func(addr string) rpc[pb.BeginOperationRequest, pb.BeginOperationResponse] {
		return s.peers.Controller(addr).BeginOperation
	}); err != nil {
		return nil, unsure(err)
	}
	out, err := s.answerOperation(ctx, id)
	return out, core.Partly(err, fmt.Sprintf("operation %s was begun, and its state cannot be read", id), "do not start it again: `columba show operation` shows it later")
}

// checkedSelection reads a selection. A time that is set but stands for no time would select all.
func checkedSelection(p *pb.DeadLetterSelection) (core.Selection, error) {
	for name, at := range map[string]*timestamppb.Timestamp{"dead_before": p.GetDeadBefore(), "dead_after": p.GetDeadAfter()} {
		if at != nil && (at.CheckValid() != nil || at.AsTime().UnixMilli() <= 0) {
			return core.Selection{}, core.Errorf(core.CodeBadArgument, "%s is not a time after 1970; leave it out to select dead letters of any time", name)
		}
	}
	for _, id := range p.GetIds() {
		if _, err := core.ParseID(id); err != nil {
			return core.Selection{}, err
		}
	}
	out := convert.Selection(p)
	return out, out.Validate()
}

// operationObject is the queue whose messages an operation is to concern.
func (s *service) operationObject(ctx context.Context, m *pb.StartOperationRequest) (core.QueueID, error) {
	if m.GetGroup() == "" {
		if m.GetKind() != string(metadata.OperationPurge) || m.GetRate() > 0 || m.GetSelection() != nil {
			return core.QueueID{}, core.Errorf(core.CodeBadArgument, "group is missing; without one a queue can only be purged, all of it, at no rate")
		}
		path, err := core.ParseQueuePath(m.GetQueue())
		if err != nil {
			return core.QueueID{}, err
		}
		_, q, err := s.resolve(ctx, path)
		return q.ID, err
	}
	_, g, err := s.group(ctx, m.GetQueue(), m.GetGroup())
	if err == nil && g.Spec.OnDLQ() {
		err = noLetters(g)
	}
	return g.DLQ, err
}

// noLetters is the error for a group that has no dead letters.
func noLetters(g metadata.GroupRecord) error {
	return core.Errorf(core.CodeUnsupported, "group %s is on a dead letter queue: it has none of its own", g.Spec.Name)
}

// GetOperation looks an operation up by its id.
func (s *service) GetOperation(ctx context.Context, req *connect.Request[pb.GetOperationRequest]) (*connect.Response[pb.Operation], error) {
	id, err := core.ParseID(req.Msg.GetId())
	if err != nil {
		return nil, err
	}
	return s.answerOperation(ctx, id)
}

func (s *service) answerOperation(ctx context.Context, id core.ID) (*connect.Response[pb.Operation], error) {
	o, err := metadata.FindOperation(ctx, s.meta, id)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(operationToProto(o)), nil
}

// CancelOperation has a controller stop an operation, and answers it as it ended.
func (s *service) CancelOperation(ctx context.Context, req *connect.Request[pb.CancelOperationRequest]) (*connect.Response[pb.Operation], error) {
	id, err := core.ParseID(req.Msg.GetId())
	if err != nil {
		return nil, err
	}
	if _, err := metadata.FindOperation(ctx, s.meta, id); err != nil { // also when no majority of the metadata answers, so that none can end it
		return nil, err
	}
	order := &pb.EndOperationRequest{Id: id.String(), Who: req.Peer().Addr}
	if _, err := ask(ctx, s.ranked(roleController, id), roleController, order, func(addr string) rpc[pb.EndOperationRequest, pb.EndOperationResponse] {
		return s.peers.Controller(addr).EndOperation
	}); err != nil {
		return nil, unsure(err)
	}
	out, err := s.answerOperation(ctx, id)
	return out, core.Partly(err, fmt.Sprintf("operation %s was cancelled, and its state cannot be read", id), "cancel it again, or look with `columba show operation`")
}

// ListOperations answers the operations that run, and if asked for those that ended within the last days.
func (s *service) ListOperations(ctx context.Context, req *connect.Request[pb.ListOperationsRequest]) (*connect.Response[pb.ListOperationsResponse], error) {
	list, err := metadata.ListOperations(ctx, s.shown, req.Msg.GetEnded())
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "list operations: %w", err)
	}
	out := &pb.ListOperationsResponse{}
	for _, o := range list {
		out.Operations = append(out.Operations, operationToProto(o))
	}
	return connect.NewResponse(out), nil
}

func operationToProto(o metadata.OperationRecord) *pb.Operation {
	out := &pb.Operation{
		Id: o.ID.String(), Kind: string(o.Kind), Queue: o.Path, Group: o.Name, Rate: uint32(o.Rate), State: string(o.State), Done: o.Done,
		Error: o.Error, Who: o.Who, Created: convert.Time(o.Created), Changed: convert.Time(o.Changed),
	}
	if o.Selection != nil {
		out.Selection = convert.SelectionToProto(*o.Selection)
	}
	if o.Search != nil {
		out.Scanned, out.Selected = o.Search.Looked, o.Search.Found
	}
	if o.Covered && o.Sealed == len(o.Extents) {
		out.Total = o.Total
	}
	if o.State == metadata.OperationDone && o.Left > 0 {
		left := fmt.Sprintf("there were %d more extents than one operation takes; start it again for them", o.Left)
		if o.Error != "" {
			left = o.Error + "; " + left
		}
		out.Error = left
	}
	return out
}
