package frontend

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

func (f *fakeController) ask(m proto.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.asked = append(f.mu.asked, m)
	return convert.RPCError(f.mu.err)
}

// BeginOperation implements the service; the record is the test's.
func (f *fakeController) BeginOperation(_ context.Context, req *connect.Request[pb.BeginOperationRequest]) (*connect.Response[pb.BeginOperationResponse], error) {
	return connect.NewResponse(&pb.BeginOperationResponse{}), f.ask(req.Msg)
}

// EndOperation implements the service.
func (f *fakeController) EndOperation(_ context.Context, req *connect.Request[pb.EndOperationRequest]) (*connect.Response[pb.EndOperationResponse], error) {
	return connect.NewResponse(&pb.EndOperationResponse{}), f.ask(req.Msg)
}

// RewindGroup implements the service.
func (f *fakeController) RewindGroup(_ context.Context, req *connect.Request[pb.RewindGroupRequest]) (*connect.Response[pb.RewindGroupResponse], error) {
	return connect.NewResponse(&pb.RewindGroupResponse{Epoch: 1}), f.ask(req.Msg)
}

// PreviewRewind implements the service.
func (f *fakeController) PreviewRewind(_ context.Context, req *connect.Request[pb.RewindGroupRequest]) (*connect.Response[pb.SeekPreview], error) {
	return connect.NewResponse(&pb.SeekPreview{Messages: 5, Extents: 2}), f.ask(req.Msg)
}

func (f *fakeController) lastAsked() proto.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mu.asked) == 0 {
		return nil
	}
	return f.mu.asked[len(f.mu.asked)-1]
}

// queueID is the id of the queue that has a path.
func (c *harness) queueID(path string) []byte {
	c.t.Helper()
	id := must(core.ParseID(must(call(c.t, c.admin.GetQueue, &pb.GetQueueRequest{Path: path}))(c.t).Id))(c.t)
	return id[:]
}

func TestOperations_AreHandedOnAndLookedUp(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	id := core.NewID(time.Now())
	record := metadata.OperationRecord{
		ID: id, Kind: metadata.OperationMerge, Object: core.QueueID{ID: core.ID{1}}, Path: "/t/a", Name: "g", Rate: 5, State: metadata.OperationRunning,
		Covered: true, Extents: make([]core.ExtentID, 2), Sealed: 1, Total: 7, Moved: 0, Done: 0, Error: "no store answers", Who: "me",
	}
	key := metadata.OperationKey(record.Object.ID)
	if err := metadata.Create(t.Context(), c.store, metadata.Operations, key, record); err != nil {
		t.Fatal(err)
	}
	req := &pb.StartOperationRequest{Id: id.String(), Kind: "merge", Queue: "/t/a", Group: "g", Rate: 5}
	o := must(call(t, c.admin.StartOperation, req))(t)
	if o.Id != id.String() || o.Total != 0 || o.Error != "no store answers" || o.State != "running" || o.Queue != "/t/a" || o.Rate != 5 {
		t.Errorf("started %v", o)
	}
	if asked, ok := c.ctl.lastAsked().(*pb.BeginOperationRequest); !ok || !proto.Equal(asked.Operation, req) || asked.Who == "" || !bytes.Equal(asked.Object, c.queueID(g.DlqPath)) {
		t.Errorf("the controller was asked for %v", c.ctl.lastAsked())
	}
	if _, err := metadata.Change(t.Context(), c.store, metadata.Operations, key, func(r *metadata.OperationRecord) error {
		r.Sealed, r.Moved, r.Total, r.Done, r.Left, r.State, r.Error = 2, 2, 9, 9, 3, metadata.OperationDone, ""
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if o := must(call(t, c.admin.GetOperation, &pb.GetOperationRequest{Id: id.String()}))(t); o.Total != 9 || o.Done != 9 || !strings.Contains(o.Error, "3 more") {
		t.Errorf("looked up %v", o)
	}
	if o := must(call(t, c.admin.CancelOperation, &pb.CancelOperationRequest{Id: id.String()}))(t); o.State != "done" {
		t.Errorf("cancelled %v", o)
	}
	if l := must(call(t, c.admin.ListOperations, &pb.ListOperationsRequest{}))(t); len(l.Operations) != 0 {
		t.Errorf("those that run: %v", l.Operations)
	}
	if l := must(call(t, c.admin.ListOperations, &pb.ListOperationsRequest{Ended: true}))(t); len(l.Operations) != 1 {
		t.Errorf("all: %v", l.Operations)
	}
	c.ctl.fail(core.Errorf(core.CodeConflict, "another one is under way"))
	_, err := call(t, c.admin.StartOperation, req)
	wantCode(t, "a second one", err, core.CodeConflict)
}

func TestOperations_RefuseWhatIsWrong(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	c.createGroup("/t/a/g.dlq", "sift")
	for name, x := range map[string]struct {
		req  *pb.StartOperationRequest
		code core.Code
	}{
		"kind":       {&pb.StartOperationRequest{Kind: "burn", Queue: "/t/a", Group: "g"}, core.CodeBadArgument},
		"rate":       {&pb.StartOperationRequest{Kind: "merge", Queue: "/t/a", Group: "g", Rate: maxRate + 1}, core.CodeBadArgument},
		"id":         {&pb.StartOperationRequest{Id: "42", Kind: "merge", Queue: "/t/a", Group: "g"}, core.CodeBadID},
		"queue":      {&pb.StartOperationRequest{Kind: "merge", Queue: "/t/none", Group: "g"}, core.CodeNotFound},
		"group":      {&pb.StartOperationRequest{Kind: "merge", Queue: "/t/a", Group: "none"}, core.CodeNotFound},
		"no letters": {&pb.StartOperationRequest{Kind: "merge", Queue: "/t/a/g.dlq", Group: "sift"}, core.CodeUnsupported},
	} {
		_, err := call(t, c.admin.StartOperation, x.req)
		wantCode(t, name, err, x.code)
	}
	_, err := call(t, c.admin.GetOperation, &pb.GetOperationRequest{Id: core.NewID(time.Now()).String()})
	wantCode(t, "an operation that never was", err, core.CodeNotFound)
	_, err = call(t, c.admin.ListDeadLetters, &pb.ListDeadLettersRequest{Queue: "/t/a/g.dlq", Group: "sift"})
	wantCode(t, "dead letters of dead letters", err, core.CodeUnsupported)
	for _, to := range []string{"", "tomorrow", time.Now().Add(time.Hour).Format(time.RFC3339)} {
		_, err := call(t, c.admin.SeekGroup, &pb.SeekGroupRequest{Queue: "/t/a", Group: "g", To: to})
		wantCode(t, "seek to "+to, err, core.CodeBadArgument)
	}
	if m := c.ctl.lastAsked(); m != nil {
		t.Errorf("the controller was asked for %v", m)
	}
}

func TestSeekGroup(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := groupID(c.createGroup("/t/a", "g"))
	must(call(t, c.admin.SeekGroup, &pb.SeekGroupRequest{Queue: "/t/a", Group: "g", To: "2026-01-02T16:04:05+01:00"}))(t)
	asked, ok := c.ctl.lastAsked().(*pb.RewindGroupRequest)
	if !ok || asked.Group != "g" || asked.To != "2026-01-02T15:04:05Z" || len(asked.Queue) != 16 || asked.Who == "" || core.ID(asked.Id) != g.ID {
		t.Errorf("the controller was asked for %v", c.ctl.lastAsked())
	}
	c.out.onDepth = func(*pb.GetDepthRequest) (*pb.GetDepthResponse, error) { return &pb.GetDepthResponse{}, nil }
	preview := must(call(t, c.admin.PreviewSeek, &pb.SeekGroupRequest{Queue: "/t/a", Group: "g", To: "earliest"}))(t)
	if preview.To != "earliest" || preview.Messages != 5 || preview.Extents != 2 || preview.Waiting == nil || *preview.Waiting != 0 {
		t.Errorf("the preview is %v", preview)
	}
	c.ctl.fail(core.Errorf(core.CodeUnavailable, "no store answers"))
	_, err := call(t, c.admin.SeekGroup, &pb.SeekGroupRequest{Queue: "/t/a", Group: "g", To: "earliest"})
	if code := core.CodeOf(err); code == "" || code == core.CodeNotFound {
		t.Errorf("without stores: %v", err)
	}
}

func TestCreateGroup_OnADeadLetterQueue(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	g := c.createGroup("/t/a/g.dlq", "sift")
	if g.DlqPath != "" || g.Spec.Exhausted != "block" {
		t.Errorf("created %v", g)
	}
	_, err := call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a/g.dlq", Name: "sift", Exhausted: "dlq"}})
	wantCode(t, "dead letters of dead letters", err, core.CodeBadArgument)
	must(call(t, c.admin.DeleteGroup, &pb.DeleteGroupRequest{Queue: "/t/a/g.dlq", Name: "sift"}))(t)
	c.createGroup("/t/a/g.dlq", "sift")
	must(call(t, c.admin.DeleteGroup, &pb.DeleteGroupRequest{Queue: "/t/a", Name: "g"}))(t)
	_, err = call(t, c.admin.GetGroup, &pb.GetGroupRequest{Queue: "/t/a/g.dlq", Name: "sift"})
	wantCode(t, "the group of a queue that went", err, core.CodeNotFound)
}

func TestOperations_Selections(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	id, message := core.NewID(time.Now()), core.NewID(time.Now()).String()
	selection := core.Selection{MinAttempts: 2, Reasons: []string{"nack"}}
	record := metadata.OperationRecord{
		ID: id, Kind: metadata.OperationPurge, Object: core.QueueID{ID: core.ID{1}}, State: metadata.OperationRunning, Selection: &selection,
		Search: &metadata.Search{Looked: 7, Found: 3},
	}
	if err := metadata.Create(t.Context(), c.store, metadata.Operations, metadata.OperationKey(record.Object.ID), record); err != nil {
		t.Fatal(err)
	}
	req := &pb.StartOperationRequest{
		Id: id.String(), Kind: "purge", Queue: "/t/a", Group: "g",
		Selection: &pb.DeadLetterSelection{Ids: []string{message}, MinAttempts: 2, DeadBefore: convert.Time(time.Unix(9, 0)), DeadAfter: convert.Time(time.Unix(8, 0)), Reasons: []string{"nack"}},
	}
	o := must(call(t, c.admin.StartOperation, req))(t)
	if o.Scanned != 7 || o.Selected != 3 || !proto.Equal(o.Selection, &pb.DeadLetterSelection{MinAttempts: 2, Reasons: []string{"nack"}}) {
		t.Errorf("it is %v", o)
	}
	if asked, _ := c.ctl.lastAsked().(*pb.BeginOperationRequest); !proto.Equal(asked.GetOperation(), req) {
		t.Errorf("asked for %v, want %v", asked, req)
	}
	req.Selection = nil
	must(call(t, c.admin.StartOperation, req))(t)
	if asked, _ := c.ctl.lastAsked().(*pb.BeginOperationRequest); asked.GetOperation().GetSelection() != nil {
		t.Errorf("without a selection it is all, asked for %v", asked)
	}
	for name, s := range map[string]*pb.DeadLetterSelection{
		"nothing, as a condition with a misspelled name is": {},
		"no id": {Ids: []string{"7"}}, "no attempts": {MinAttempts: 3, MaxAttempts: 2}, "no reason": {Reasons: []string{""}},
		"the zero time, which is not set for a host": {DeadBefore: timestamppb.New(time.Time{})}, "no time": {DeadAfter: &timestamppb.Timestamp{Seconds: math.MaxInt64}},
	} {
		req.Selection = s
		if _, err := call(t, c.admin.StartOperation, req); err == nil || core.CodeOf(err).Class() != core.ClassFatal {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := call(t, c.admin.StartOperation, &pb.StartOperationRequest{Kind: "purge", Queue: "/t/a", Selection: &pb.DeadLetterSelection{MinAttempts: 1}})
	wantCode(t, "of a queue", err, core.CodeBadArgument)
}
