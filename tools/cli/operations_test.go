package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// operation is one that is half done; with the id of the fake it has ended.
func operation(id, kind, state string) *pb.Operation {
	return &pb.Operation{
		Id: id, Kind: kind, Queue: "/demo/a", Group: "billing", State: state, Done: 20, Total: 40, Rate: 5, Who: "127.0.0.1:4", Created: fakeTime, Changed: fakeTime,
	}
}

// StartOperation implements the service: merges go on, purges of group mail conflict.
func (s *fakeServer) StartOperation(_ context.Context, r *connect.Request[pb.StartOperationRequest]) (*connect.Response[pb.Operation], error) {
	if _, err := core.ParseID(r.Msg.GetId()); err != nil {
		return nil, fail(core.CodeBadID, "%v", err)
	}
	if r.Msg.GetGroup() == "mail" {
		return nil, fail(core.CodeConflict, "a merge of the dead letters of group mail of %s is under way; wait for operation %s to end, or cancel it", r.Msg.GetQueue(), fakeID)
	}
	asked := proto.Clone(r.Msg).(*pb.StartOperationRequest)
	asked.Id = ""
	s.note(asked)
	o := operation(fakeID, r.Msg.GetKind(), "running")
	if r.Msg.GetGroup() == "" && s.part != nil {
		o.Group, o.State, o.Error = "", "done", "something is left"
		s.part()
		return connect.NewResponse(o), nil
	}
	if r.Msg.GetGroup() == "idle" {
		o.Group, o.State, o.Done, o.Total, o.Selection = "idle", "done", 0, 0, r.Msg.GetSelection()
		return connect.NewResponse(o), nil
	}
	if o.Selection = r.Msg.GetSelection(); o.Selection != nil { // it is over soon
		o.State, o.Scanned, o.Selected, o.Done = "done", 40, 7, 7
		return connect.NewResponse(o), nil
	}
	o.Rate, o.Error = r.Msg.GetRate(), "fix the end of extent "+fakeExtent+": no store answers"
	return connect.NewResponse(o), nil
}

// GetOperation implements the service.
func (s *fakeServer) GetOperation(_ context.Context, r *connect.Request[pb.GetOperationRequest]) (*connect.Response[pb.Operation], error) {
	switch r.Msg.GetId() {
	case fakeID:
		o := operation(fakeID, "merge", "done")
		o.Done = 40
		return connect.NewResponse(o), nil
	case fakeExtent:
		o := operation(fakeExtent, "purge", "failed")
		o.Error = "the group was deleted"
		return connect.NewResponse(o), nil
	case fakeSealed:
		return connect.NewResponse(operation(fakeSealed, "merge", "cancelled")), nil
	}
	return nil, fail(core.CodeNotFound, "operation %s does not exist, or ended long ago", r.Msg.GetId())
}

// CancelOperation implements the service.
func (s *fakeServer) CancelOperation(_ context.Context, r *connect.Request[pb.CancelOperationRequest]) (*connect.Response[pb.Operation], error) {
	return connect.NewResponse(operation(r.Msg.GetId(), "merge", "cancelled")), nil
}

// ListOperations implements the service.
func (s *fakeServer) ListOperations(_ context.Context, r *connect.Request[pb.ListOperationsRequest]) (*connect.Response[pb.ListOperationsResponse], error) {
	res := &pb.ListOperationsResponse{Operations: []*pb.Operation{operation(fakeID, "merge", "running")}}
	if r.Msg.GetEnded() {
		res.Operations = append(res.Operations, operation(fakeSealed, "purge", "done"))
	}
	return connect.NewResponse(res), nil
}

// SeekGroup implements the service.
func (s *fakeServer) SeekGroup(ctx context.Context, r *connect.Request[pb.SeekGroupRequest]) (*connect.Response[pb.Group], error) {
	s.note(r.Msg)
	g, err := s.GetGroup(ctx, connect.NewRequest(&pb.GetGroupRequest{Queue: r.Msg.GetQueue(), Name: r.Msg.GetGroup()}))
	if err == nil {
		g.Msg.LastSeek, g.Msg.LastSeekAt = r.Msg.GetTo(), fakeTime
	}
	return g, err
}

// PreviewSeek implements the service.
func (s *fakeServer) PreviewSeek(ctx context.Context, r *connect.Request[pb.SeekGroupRequest]) (*connect.Response[pb.SeekPreview], error) {
	if _, err := s.GetGroup(ctx, connect.NewRequest(&pb.GetGroupRequest{Queue: r.Msg.GetQueue(), Name: r.Msg.GetGroup()})); err != nil {
		return nil, err
	}
	if strings.HasPrefix(r.Msg.GetTo(), "9999") {
		return nil, fail(core.CodeBadArgument, "%s is in the future; use latest, or an earlier time", r.Msg.GetTo())
	}
	out := &pb.SeekPreview{To: r.Msg.GetTo(), Messages: 1000, Extents: 3}
	if r.Msg.GetTo() == "earliest" {
		out.Waiting = proto.Uint64(7)
	}
	return connect.NewResponse(out), nil
}

// TestCommandsAskForWhatWasSaid looks at the requests.
func TestCommandsAskForWhatWasSaid(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]proto.Message{
		"merge-dlq /demo/a billing --rate 7": &pb.StartOperationRequest{Kind: "merge", Queue: "/demo/a", Group: "billing", Rate: 7},
		"purge-dlq /demo/a billing --yes --max-attempts 3 --reason a,b --reason c --id " + fakeID + " --older-than 2026-01-02T15:04:05Z --newer-than 2026-01-01T15:04:05+01:00": &pb.StartOperationRequest{
			Kind: "purge", Queue: "/demo/a", Group: "billing", Selection: &pb.DeadLetterSelection{
				Ids: []string{fakeID}, Reasons: []string{"a,b", "c"}, MaxAttempts: 3,
				DeadBefore: timestamppb.New(time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)), DeadAfter: timestamppb.New(time.Date(2026, 1, 1, 14, 4, 5, 0, time.UTC)),
			},
		},
		"purge-dlq /demo/a billing --yes":                     &pb.StartOperationRequest{Kind: "purge", Queue: "/demo/a", Group: "billing"},
		"seek /demo/a billing --to earliest":                  &pb.SeekGroupRequest{Queue: "/demo/a", Group: "billing", To: "earliest"},
		"seek /demo/a billing --to 2026-01-02T15:04:05+01:00": &pb.SeekGroupRequest{Queue: "/demo/a", Group: "billing", To: "2026-01-02T14:04:05Z"},
	} {
		s, addr := newFakeServer(t)
		if err := s.setup("/demo/a", "billing"); err != nil {
			t.Fatal(err)
		}
		s.last = nil
		run(addr, line)
		s.mu.Lock()
		if !proto.Equal(s.last, want) {
			t.Errorf("%s: asked for %v, want %v", line, s.last, want)
		}
		s.mu.Unlock()
	}
}
