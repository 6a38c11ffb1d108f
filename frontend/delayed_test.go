package frontend

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

const (
	earlierExtent = "01890a5d-ac96-774b-bcce-b302099a8057"
	laterExtent   = "01890a5d-ac97-7000-8000-000000000001"
)

// TestListDelayed_AllParts goes through the pages of a group: what two owners hold, in the order of receipts and each
// once, then what was published for later, then the retry queue.
func TestListDelayed_AllParts(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	b := c.addOutput("b")
	for _, owner := range []core.HostID{"a", "b"} {
		e := newExtent(g)
		c.addExtent(e)
		c.assign(g, e, 1, owner)
	}
	held := func(next string, all ...string) func(*pb.ListWaitingRequest) (*pb.ListWaitingResponse, error) {
		return func(r *pb.ListWaitingRequest) (*pb.ListWaitingResponse, error) {
			out := &pb.ListWaitingResponse{}
			for _, receipt := range all {
				if r.After != "" && compareReceipts(receipt, r.After) <= 0 {
					continue
				}
				if len(out.Messages) == int(r.Limit) {
					return out, nil
				}
				out.Messages, out.Next = append(out.Messages, &pb.DelayedMessage{Receipt: receipt, Source: "retry"}), receipt
				if receipt == next {
					return out, nil
				}
			}
			out.Next = ""
			return out, nil
		}
	}
	c.out.onWaiting = held(earlierExtent+":9", earlierExtent+":9", earlierExtent+":10", laterExtent+":4")
	b.onWaiting = held("", earlierExtent+":11", laterExtent+":2")
	due := timestamppb.New(time.Now().Add(time.Hour))
	timers := func(r *pb.ListTimersRequest) (*pb.PeekResponse, error) {
		m := &pb.StoredMessage{Receipt: laterExtent + ":20", Enqueued: timestamppb.Now(), Message: &pb.Message{Id: laterExtent, DeliverAt: due}}
		if r.After == "" {
			return &pb.PeekResponse{Messages: []*pb.StoredMessage{m}, Next: laterExtent + ":20@5"}, nil
		}
		if r.After != laterExtent+":20@5" {
			t.Errorf("timers after %q", r.After)
		}
		return &pb.PeekResponse{}, nil
	}
	retries := func(r *pb.ListRetryQueueRequest) (*pb.ListRetryQueueResponse, error) {
		out := &pb.ListRetryQueueResponse{}
		for _, receipt := range []string{laterExtent + ":30", laterExtent + ":31"} {
			if r.After != "" && compareReceipts(receipt, r.After) <= 0 {
				continue
			}
			if len(out.Messages) == int(r.Limit) {
				out.Next = out.Messages[len(out.Messages)-1].Receipt
				break
			}
			out.Messages = append(out.Messages, &pb.RetryQueueMessage{Receipt: receipt, Until: due, Attempts: 2, Message: &pb.Message{DeliverAt: due}})
		}
		return out, nil
	}
	for _, out := range []*fakeOutput{c.out, b} {
		out.onTimers, out.onRetryQueue = timers, retries
	}
	walk := func(req *pb.ListDelayedRequest) (out []string) {
		t.Helper()
		for range 20 {
			page := must(call(t, c.admin.ListDelayed, req))(t)
			if req.Limit > 0 && len(page.Messages) > int(req.Limit) {
				t.Errorf("a page of %d has %d messages", req.Limit, len(page.Messages))
			}
			for _, m := range page.Messages {
				out = append(out, m.Source+" "+strings.TrimPrefix(strings.TrimPrefix(m.Receipt, earlierExtent), laterExtent))
				if m.GetMessage().GetDeliverAt() != nil || m.Source == "publish" && !m.GetDue().AsTime().Equal(due.AsTime()) {
					t.Errorf("listed: %v", m)
				}
			}
			if req.After = page.Next; req.After == "" {
				return out
			}
		}
		t.Fatal("the listing does not end")
		return nil
	}
	want := "retry :9, retry :10, retry :11, retry :2, retry :4, publish :20, retry :30, retry :31"
	for limit := range int32(10) {
		if got := strings.Join(walk(&pb.ListDelayedRequest{Queue: "/t/a", Group: "g", Limit: limit}), ", "); got != want {
			t.Errorf("in pages of %d are listed %s, want %s", limit, got, want)
		}
	}
	if got := strings.Join(walk(&pb.ListDelayedRequest{Queue: "/t/a"}), ", "); got != "publish :20" {
		t.Errorf("without a group are listed %s", got)
	}
	if got := strings.Join(walk(&pb.ListDelayedRequest{Queue: "/t/a", Id: laterExtent}), ", "); got != "publish :20" {
		t.Errorf("by its id is listed %s", got)
	}
	if got := walk(&pb.ListDelayedRequest{Queue: "/t/a", Id: earlierExtent}); len(got) > 0 {
		t.Errorf("by another id are listed %s", got)
	}
	b.onWaiting = nil
	_, err := call(t, c.admin.ListDelayed, &pb.ListDelayedRequest{Queue: "/t/a", Group: "g"})
	if err == nil {
		t.Error("an owner that does not answer is left out")
	}
}

func TestListDelayed_Refuses(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	for name, x := range map[string]struct {
		req  *pb.ListDelayedRequest
		code core.Code
	}{
		"no group":               {&pb.ListDelayedRequest{Queue: "/t/a", Group: "none"}, core.CodeNotFound},
		"no queue":               {&pb.ListDelayedRequest{Queue: "/t/none"}, core.CodeNotFound},
		"bad queue":              {&pb.ListDelayedRequest{Queue: "x"}, core.CodeBadName},
		"bad id":                 {&pb.ListDelayedRequest{Queue: "/t/a", Id: "x"}, core.CodeBadID},
		"bad token":              {&pb.ListDelayedRequest{Queue: "/t/a", After: "x"}, core.CodeBadArgument},
		"a receipt as the token": {&pb.ListDelayedRequest{Queue: "/t/a", After: laterExtent + ":1"}, core.CodeBadArgument},
		"bad receipt":            {&pb.ListDelayedRequest{Queue: "/t/a", Group: "g", After: partRetry + "x:1"}, core.CodeBadID},
		"a part of a group":      {&pb.ListDelayedRequest{Queue: "/t/a", After: partRetry + laterExtent + ":1"}, core.CodeBadArgument},
		"huge token":             {&pb.ListDelayedRequest{Queue: "/t/a", After: partPublish + strings.Repeat("1", 1<<20)}, core.CodeBadArgument},
		"negative page":          {&pb.ListDelayedRequest{Queue: "/t/a", Limit: -1}, core.CodeBadArgument},
		"large page":             {&pb.ListDelayedRequest{Queue: "/t/a", Group: "g", Limit: 1001}, core.CodeBadArgument},
	} {
		_, err := call(t, c.admin.ListDelayed, x.req)
		wantCode(t, name, err, x.code)
	}
}
