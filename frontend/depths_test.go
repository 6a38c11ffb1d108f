package frontend

import (
	"context"
	"slices"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
)

// fakeDepths are what a controller says of depths; set before it is asked.
type fakeDepths struct {
	depths         []*pb.Depth // by backlog, if it is one of several
	more           bool        // the page is not the last one
	known, counted uint32
	others         []string // ids of queues
	garbage        bool     // the ids are none
}

// ListDepths answers what a test says.
func (f *fakeController) ListDepths(_ context.Context, req *connect.Request[pb.ListDepthsRequest]) (*connect.Response[pb.ListDepthsResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.asked = append(f.mu.asked, req.Msg)
	if f.mu.err != nil {
		return nil, convert.RPCError(f.mu.err)
	}
	after, err := backlog.ParsePlace(req.Msg.After)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	out := &pb.ListDepthsResponse{Known: f.known, Counted: f.counted}
	if f.more {
		out.Next = "more"
	}
	for _, d := range f.depths {
		switch place := placeOf(d); {
		case len(req.Msg.Queues) > 0 && !slices.Contains(req.Msg.Queues, d.Queue):
		case !req.Msg.Part:
			out.Depths = append(out.Depths, d)
		case req.Msg.After != "" && backlog.ByBacklog.Compare(place, after) <= 0:
		case req.Msg.Limit > 0 && len(out.Depths) == int(req.Msg.Limit):
			out.Next = out.Places[len(out.Places)-1]
		default:
			out.Depths, out.Places = append(out.Depths, d), append(out.Places, place.String())
		}
	}
	for _, b := range req.Msg.Ids {
		if slices.Contains(f.others, core.ID(b).String()) {
			out.Others = append(out.Others, b)
		}
	}
	if f.garbage {
		out.Others = [][]byte{{1, 2, 3}, nil}
	}
	return connect.NewResponse(out), nil
}

func TestListDepths(t *testing.T) {
	c := newHarness(t, nil)
	c.ctl.more = true
	c.ctl.depths = []*pb.Depth{{Queue: "/t/a", Group: "g", Ready: 10, AckRate: 2, PublishRate: 1}}
	req := &pb.ListDepthsRequest{Prefix: "/t/", Sort: "age", Limit: 7, After: "1 /t/a g"}
	out := must(call(t, c.admin.ListDepths, req))(t)
	if len(out.Depths) != 1 || out.Depths[0].Ready != 10 || out.Depths[0].DrainMs != 10_000 || out.Next != "more" {
		t.Errorf("got %v", out)
	}
	if asked := c.ctl.mu.asked[0].(*pb.ListDepthsRequest); asked.Prefix != "/t/" || asked.Sort != "age" || asked.Limit != 7 || asked.After != req.After {
		t.Errorf("the controller was asked %v", asked)
	}
	for name, bad := range map[string]struct {
		req  *pb.ListDepthsRequest
		code core.Code
	}{
		"a prefix that is none": {&pb.ListDepthsRequest{Prefix: "t"}, core.CodeBadName},
		"a limit below 0":       {&pb.ListDepthsRequest{Limit: -1}, core.CodeBadArgument},
		"a limit too large":     {&pb.ListDepthsRequest{Limit: 1001}, core.CodeBadArgument},
		"too many queues":       {&pb.ListDepthsRequest{Queues: make([]string, 1001)}, core.CodeTooLarge},
		"a queue that is none":  {&pb.ListDepthsRequest{Queues: []string{"t"}}, core.CodeBadName},
	} {
		_, err := call(t, c.admin.ListDepths, bad.req)
		wantCode(t, name, err, bad.code)
	}
	if len(c.ctl.mu.asked) != 1 {
		t.Errorf("the controller was asked %d times: bad requests are not for it", len(c.ctl.mu.asked))
	}
	c.ctl.fail(core.Errorf(core.CodeUnavailable, "not counted yet"))
	_, err := call(t, c.admin.ListDepths, req)
	wantCode(t, "before the first round", err, core.CodeUnavailable)
}

// TestListQueues_Depths: by name every queue has its depth, without a controller none has; by backlog the controller's
// order counts.
func TestListQueues_Depths(t *testing.T) {
	c := newHarness(t, nil)
	for _, path := range []string{"/t/a", "/t/b", "/t/c"} {
		c.createQueue(path)
	}
	c.ctl.more = true
	c.ctl.depths = []*pb.Depth{{Queue: "/t/c", Ready: 10}, {Queue: "/t/gone", Ready: 5}, {Queue: "/t/a", Ready: 1}}
	out := must(call(t, c.admin.ListQueues, &pb.ListQueuesRequest{Depths: true}))(t)
	for i, want := range []uint64{1, 0, 10} {
		if q := out.Queues[i]; q.Depth == nil || q.Depth.Ready != want || q.Depth.Queue != q.Spec.Path {
			t.Errorf("%s has the depth %v, want %d", q.Spec.Path, q.Depth, want)
		}
	}
	if out := must(call(t, c.admin.ListQueues, &pb.ListQueuesRequest{}))(t); out.Queues[0].Depth != nil {
		t.Errorf("who does not ask gets %v", out.Queues[0])
	}
	out = must(call(t, c.admin.ListQueues, &pb.ListQueuesRequest{Sort: "backlog"}))(t)
	if len(out.Queues) != 2 || out.Queues[0].Spec.Path != "/t/c" || out.Queues[1].Spec.Path != "/t/a" || out.Queues[0].Depth.GetReady() != 10 || out.Next != "more" {
		t.Errorf("by backlog: %v", out)
	}
	_, err := call(t, c.admin.ListQueues, &pb.ListQueuesRequest{Sort: "size"})
	wantCode(t, "another order", err, core.CodeBadArgument)
	c.ctl.fail(core.Errorf(core.CodeUnavailable, "not counted yet"))
	if out := must(call(t, c.admin.ListQueues, &pb.ListQueuesRequest{Depths: true}))(t); len(out.Queues) != 3 || out.Queues[0].Depth != nil {
		t.Errorf("without a controller: %v", out)
	}
	_, err = call(t, c.admin.ListQueues, &pb.ListQueuesRequest{Sort: "age"})
	wantCode(t, "by age without a controller", err, core.CodeUnavailable)
}
