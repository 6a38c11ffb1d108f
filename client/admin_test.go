package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// adminFake answers the calls that the tests make.
type adminFake struct {
	columbav1connect.UnimplementedAdminServiceHandler
	columbav1connect.UnimplementedMessageServiceHandler
	pages int
	loop  bool
	got   any

	mu     sync.Mutex
	asked  map[string]int // calls for each page of a list
	refuse func(page string, call int) error
}

func startAdmin(t *testing.T, f *adminFake, opts ...Option) *Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(columbav1connect.NewAdminServiceHandler(f))
	mux.Handle(columbav1connect.NewMessageServiceHandler(f))
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	c, err := Dial(limited(t), srv.Listener.Addr().String(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (f *adminFake) CreateQueue(_ context.Context, r *connect.Request[pb.CreateQueueRequest]) (*connect.Response[pb.Queue], error) {
	f.got = convert.QueueSpec(r.Msg.Spec)
	switch r.Msg.Spec.Path {
	case "/t/taken":
		return nil, convert.RPCError(core.Errorf(core.CodeExists, "queue /t/taken exists"))
	case "/t/lost":
		panic(http.ErrAbortHandler)
	}
	return connect.NewResponse(&pb.Queue{Id: core.ID{1}.String(), Spec: r.Msg.Spec}), nil
}

func (f *adminFake) ListQueues(_ context.Context, r *connect.Request[pb.ListQueuesRequest]) (*connect.Response[pb.ListQueuesResponse], error) {
	if err := f.ask(r.Msg.After); err != nil {
		return nil, convert.RPCError(err)
	}
	page, _ := strconv.Atoi(r.Msg.After)
	res := &pb.ListQueuesResponse{}
	for i := range 2 {
		res.Queues = append(res.Queues, &pb.Queue{Spec: &pb.QueueSpec{Path: fmt.Sprintf("%s%d-%d", r.Msg.Prefix, page, i)}})
	}
	if page+1 < f.pages {
		res.Next = strconv.Itoa(page + 1)
	}
	if f.loop {
		res.Next = "0"
	}
	return connect.NewResponse(res), nil
}

func (f *adminFake) ask(page string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked == nil {
		f.asked = map[string]int{}
	}
	f.asked[page]++
	if f.refuse == nil {
		return nil
	}
	return f.refuse(page, f.asked[page])
}

func (f *adminFake) SealExtent(_ context.Context, r *connect.Request[pb.SealExtentAdminRequest]) (*connect.Response[pb.ExtentInfo], error) {
	f.got = r.Msg
	return connect.NewResponse(&pb.ExtentInfo{Extent: r.Msg.Extent}), nil
}

func (f *adminFake) ListDeadLetters(_ context.Context, r *connect.Request[pb.ListDeadLettersRequest]) (*connect.Response[pb.ListDeadLettersResponse], error) {
	res := &pb.ListDeadLettersResponse{}
	if r.Msg.Id == "" || r.Msg.Id == (core.ID{2}).String() {
		res.DeadLetters = append(res.DeadLetters, &pb.DeadLetter{
			Id: core.ID{2}.String(), Receipt: core.Receipt{Seq: 4}.String(), Origin: core.Receipt{Seq: 9}.String(),
			Message: &pb.Message{Payload: []byte("x")}, Attempts: 10, Reason: "max_deliveries", Error: "boom",
		})
	}
	return connect.NewResponse(res), nil
}

func (f *adminFake) Publish(_ context.Context, r *connect.Request[pb.PublishRequest]) (*connect.Response[pb.PublishResponse], error) {
	res := &pb.PublishResponse{}
	for i, m := range r.Msg.Messages {
		out := &pb.PublishResponse_Result{Id: m.Id, Receipt: core.Receipt{Seq: core.Seq(i + 1)}.String()}
		if len(m.Payload) == 0 {
			out = &pb.PublishResponse_Result{Error: &pb.Error{Code: string(core.CodeThrottled), Text: "too fast"}}
		}
		res.Results = append(res.Results, out)
	}
	return connect.NewResponse(res), nil
}

func (f *adminFake) Pull(_ context.Context, r *connect.Request[pb.PullRequest]) (*connect.Response[pb.PullResponse], error) {
	f.got = r.Msg.Wait.AsDuration()
	return connect.NewResponse(&pb.PullResponse{Messages: []*pb.PulledMessage{{
		Token: "tok", Receipt: core.Receipt{Seq: 7}.String(), Attempt: 2, Message: &pb.Message{Payload: []byte("x"), Key: "k"},
	}}}), nil
}

func (f *adminFake) Nack(_ context.Context, r *connect.Request[pb.NackRequest]) (*connect.Response[pb.SettleResponse], error) {
	f.got = r.Msg
	return connect.NewResponse(&pb.SettleResponse{Failures: []*pb.SettleResponse_Failure{
		{Token: r.Msg.Tokens[1], Error: &pb.Error{Code: string(core.CodeBadToken), Text: "forged"}},
	}}), nil
}

func TestAdmin_CreateQueue(t *testing.T) {
	f := &adminFake{}
	a := startAdmin(t, f).Admin()
	spec := core.QueueSpec{Path: "/t/q", MaxMessage: 4096, ConsumedRetention: time.Hour, Consistency: core.CP}
	q, err := a.CreateQueue(limited(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(spec, q.Spec); diff != "" || q.ID.IsZero() {
		t.Errorf("queue %v (-want +got):\n%s", q.ID, diff)
	}
	if _, err := a.CreateQueue(limited(t), core.QueueSpec{Path: "/t/taken"}); !errors.Is(err, ErrExists) {
		t.Errorf("taken path: %v, want already exists", err)
	}
	if _, err := a.CreateQueue(limited(t), core.QueueSpec{Path: "/t/lost"}); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("lost answer: %v, want unknown outcome", err)
	}
	if _, err := a.GetQueue(limited(t), "/t/q"); core.CodeOf(err) != core.CodeUnimplemented {
		t.Errorf("a call the server does not know: %v", err)
	}
}

func TestAdmin_SealExtent(t *testing.T) {
	f := &adminFake{}
	a := startAdmin(t, f).Admin()
	extent := core.ID{1}.String()
	for _, o := range []SealOptions{{}, {Force: true}, {Force: true, GiveUpQuarantined: true}} {
		if _, err := a.SealExtent(limited(t), "/t/q", extent, o); err != nil {
			t.Fatal(err)
		}
		want := &pb.SealExtentAdminRequest{Queue: "/t/q", Extent: extent, Force: o.Force, GiveUpQuarantined: o.GiveUpQuarantined}
		if got, is := f.got.(*pb.SealExtentAdminRequest); !is || !proto.Equal(got, want) {
			t.Errorf("%+v: the server got %v", o, f.got)
		}
	}
}

func TestAdmin_DeadLetters(t *testing.T) {
	a := startAdmin(t, &adminFake{}).Admin()
	n := 0
	for d, err := range a.DeadLetters(limited(t), "/t/q", "g") {
		n++
		if err != nil || d.Attempts != 10 || d.Receipt.Seq != 4 || d.Origin.Seq != 9 || string(d.Message.Body) != "x" || d.Error != "boom" {
			t.Errorf("dead letter %+v, %v", d, err)
		}
	}
	if n != 1 {
		t.Errorf("%d dead letters, want 1", n)
	}
	if _, err := a.GetDeadLetter(limited(t), "/t/q", "g", core.ID{3}.String()); !errors.Is(err, ErrNotFound) {
		t.Errorf("absent: %v, want not found", err)
	}
}

func TestClient_CallsByToken(t *testing.T) {
	f := &adminFake{}
	c := startAdmin(t, f)
	id := NewMessageID()
	res, err := c.PublishOnce(limited(t), "/t/q", Message{Body: []byte("a"), ID: id}, Message{})
	if err != nil || len(res) != 2 || res[0].Receipt.ID != id || res[0].Receipt.Seq != 1 || !errors.Is(res[1].Err, ErrThrottled) {
		t.Errorf("publish: %+v, %v", res, err)
	}
	got, err := c.Pull(limited(t), "/t/q", "g", 5, 3*time.Second)
	if err != nil || len(got) != 1 || got[0].Token != "tok" || got[0].Attempt != 2 || got[0].Message.Key != "k" || f.got != 3*time.Second {
		t.Errorf("pull: %+v, %v, waited %v", got, err, f.got)
	}
	bad, err := c.Nack(limited(t), []string{"a", "b"}, After(0), Reason("no"))
	if err != nil || len(bad) != 1 || bad[0].Token != "b" || !errors.Is(bad[0].Err, ErrBadToken) {
		t.Errorf("nack: %+v, %v", bad, err)
	}
	if req := f.got.(*pb.NackRequest); req.Delay == nil || req.Reason != "no" {
		t.Errorf("request %v: a delay of zero is not the group's backoff", req)
	}
}

func TestParseReceipt(t *testing.T) {
	want := core.Receipt{Extent: core.ExtentID{ID: core.NewID(time.Now())}, Seq: 12}
	if got, err := ParseReceipt(want.String()); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, s := range []string{"x", ":", "a:1", want.Extent.String() + ":-1", want.Extent.String()} {
		if _, err := ParseReceipt(s); core.CodeOf(err) != core.CodeBadID {
			t.Errorf("%q: %v, want bad id", s, err)
		}
	}
}

// TestPurgeSelected_NeedsACondition: a caller that forgets to set one does not purge all dead letters, and no call is
// made.
func TestPurgeSelected_NeedsACondition(t *testing.T) {
	f := &adminFake{}
	if _, err := startAdmin(t, f).Admin().PurgeSelected(t.Context(), "/t/a", "g", core.Selection{}); !errors.Is(err, ErrBadArgument) || f.got != nil {
		t.Errorf("%v, the server got %v", err, f.got)
	}
}
