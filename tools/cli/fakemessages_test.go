package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

func (s *fakeServer) GetDepth(_ context.Context, r *connect.Request[pb.GetDepthRequest]) (*connect.Response[pb.GetDepthResponse], error) {
	if s.away.Add(-1) >= 0 {
		return nil, fail(core.CodeUnavailable, "no output host has the shares of group billing just now")
	}
	res := &pb.GetDepthResponse{}
	if r.Msg.Queue == "/demo/nogroups" {
		return connect.NewResponse(res), nil
	}
	for i, g := range []string{"billing", "mail"} {
		if r.Msg.Group == "" || r.Msg.Group == g {
			res.Groups = append(res.Groups, &pb.Depth{Queue: r.Msg.Queue, Group: g, Ready: 100, InFlight: 5, Dead: uint64(3 - 3*i), OldestReadyMs: 1500, AckRate: 250.04, PublishRate: 50 + 300*float64(i), DrainMs: []int64{525, -1}[i], UnknownExtents: uint32(i)})
		}
	}
	return connect.NewResponse(res), nil
}

// ListDepths answers two rows a page.
func (s *fakeServer) ListDepths(_ context.Context, r *connect.Request[pb.ListDepthsRequest]) (*connect.Response[pb.ListDepthsResponse], error) {
	all := []*pb.Depth{
		{Queue: "/demo/a", Group: "billing", Ready: 100, InFlight: 5, Dead: 3, OldestReadyMs: 1500, AckRate: 250, PublishRate: 50, DrainMs: 525, Bytes: 10500},
		{Queue: "/demo/a", Group: "mail", Ready: 90, Delayed: 1, PublishRate: 50, DrainMs: -1, UnknownExtents: 2, Bytes: 9100},
		{Queue: "/demo/b", Group: "mail"},
	}
	if r.Msg.Prefix == "/none/" {
		all = nil
	}
	if r.Msg.Sort == "age" {
		slices.Reverse(all)
	}
	res := &pb.ListDepthsResponse{}
	if r.Msg.Prefix == "/lacking/" {
		res.UncountedQueues, res.Silent = 3, []string{"ctl-2"}
	}
	if r.Msg.After == "2" {
		res.Depths = all[2:]
	} else if len(all) > 2 {
		res.Depths, res.Next = all[:2], "2"
	}
	res.Depths = res.Depths[:min(len(res.Depths), int(r.Msg.Limit))]
	return connect.NewResponse(res), nil
}

func (s *fakeServer) WhyStuck(_ context.Context, r *connect.Request[pb.WhyStuckRequest]) (*connect.Response[pb.WhyStuckResponse], error) {
	if r.Msg.Group != "billing" {
		return connect.NewResponse(&pb.WhyStuckResponse{Queue: r.Msg.Queue, Group: r.Msg.Group, Reason: "nothing_waits", Text: "all is settled"}), nil
	}
	return connect.NewResponse(&pb.WhyStuckResponse{
		Queue: r.Msg.Queue, Group: r.Msg.Group, Reason: "outstanding_limit", Text: "too many", Also: []string{"in_flight", "no_credit"}, Extents: 2,
		Message: &pb.Standing{
			State: "in_flight", Receipt: fakeExtent + ":7", Id: fakeID, Enqueued: fakeTime, Attempts: 3, LastFailure: "nack", LastError: "line 1\nline 2",
			Until: fakeTime, AgeMs: 61_000, Owner: "out-1",
			Holder: &pb.Holder{Consumer: "worker-1", Host: "out-1", Session: 9, Address: "10.0.0.7:50123", Connected: fakeTime, Since: fakeTime},
		},
	}), nil
}

func (s *fakeServer) GetMessage(_ context.Context, r *connect.Request[pb.GetMessageRequest]) (*connect.Response[pb.MessageInfo], error) {
	if r.Msg.Receipt != fakeExtent+":7" {
		return nil, fail(core.CodeNotFound, "message %s does not exist", r.Msg.Receipt)
	}
	return connect.NewResponse(&pb.MessageInfo{
		Receipt: r.Msg.Receipt, Queue: "/demo/a", ExtentState: "sealed", Stored: "committed", Stores: []string{"store-1", "store-2"}, Enqueued: fakeTime, Bytes: 5,
		Message: &pb.Message{Id: fakeID, Key: "k", DeliverAt: fakeTime, Headers: map[string]string{"b": "2", "a": "1"}, Payload: []byte("hello")},
		Groups: []*pb.Standing{
			{Group: "billing", State: "in_flight", Attempts: 2, Until: fakeTime, Holder: &pb.Holder{Consumer: "worker-1", Since: fakeTime}},
			{Group: "mail", State: "dead", Attempts: 10, LastFailure: "nack", LastError: "no", DeadLetter: fakeSealed + ":1"},
			{Group: "sms", State: "delayed", Attempts: 1, LastFailure: "nack", Until: fakeTime, RetryReceipt: fakeSealed + ":2", Detail: "not among the first 7 dead letters"},
			{Group: "ledger", State: "settled"},
		},
	}), nil
}

func (s *fakeServer) ListDeadLetters(_ context.Context, r *connect.Request[pb.ListDeadLettersRequest]) (*connect.Response[pb.ListDeadLettersResponse], error) {
	res := &pb.ListDeadLettersResponse{}
	for _, d := range s.letters {
		if d.Receipt <= r.Msg.After || r.Msg.Id != "" && r.Msg.Id != d.Id {
			continue
		}
		if n := len(res.DeadLetters); n == 2 || n > 0 && n == int(r.Msg.Limit) {
			res.Next = res.DeadLetters[n-1].Receipt
			break
		}
		res.DeadLetters = append(res.DeadLetters, d)
	}
	return connect.NewResponse(res), nil
}

// fakePage bounds a page of a list of three, whose tokens are receipts in fakeExtent.
func fakePage(after string, limit int32) (first, last int, next string) {
	if _, seq, ok := strings.Cut(after, ":"); ok {
		first, _ = strconv.Atoi(seq)
	}
	if last = 3; limit > 0 && first+int(limit) < last {
		last = first + int(limit)
		next = fmt.Sprintf("%s:%d", fakeExtent, last)
	}
	return first, last, next
}

func (s *fakeServer) ListDelayed(_ context.Context, r *connect.Request[pb.ListDelayedRequest]) (*connect.Response[pb.ListDelayedResponse], error) {
	if _, err := s.queue(r.Msg.Queue); err != nil {
		return nil, err
	}
	res := &pb.ListDelayedResponse{}
	if r.Msg.Group == "idle" {
		return connect.NewResponse(res), nil
	}
	first, last, next := fakePage(r.Msg.After, r.Msg.Limit)
	res.Next = next
	for i := first; i < last; i++ {
		m := &pb.DelayedMessage{
			Id: fakeID, Receipt: fmt.Sprintf("%s:%d", fakeExtent, i+1), Source: "publish", Due: timestamppb.New(fakeTime.AsTime().Add(time.Duration(i+1) * time.Hour)),
			Message: &pb.Message{Id: fakeID, Key: "k"}, Enqueued: fakeTime,
		}
		if r.Msg.Group != "" {
			m.Source, m.Attempts, m.Reason, m.Error, m.LastConsumer = "retry", int32(i+1), "nack", "busy", "host-7"
			m.Origin, m.DelayedSince = fakeExtent+":9", fakeTime
		}
		res.Messages = append(res.Messages, m)
	}
	return connect.NewResponse(res), nil
}

func (s *fakeServer) Peek(_ context.Context, r *connect.Request[pb.PeekRequest]) (*connect.Response[pb.PeekResponse], error) {
	if _, err := s.queue(r.Msg.Queue); err != nil {
		return nil, err
	}
	res := &pb.PeekResponse{}
	first, last, next := fakePage(r.Msg.After, r.Msg.Limit)
	res.Next = next
	for i := first; i < last; i++ {
		res.Messages = append(res.Messages, &pb.StoredMessage{
			Receipt: fmt.Sprintf("%s:%d", fakeExtent, i+1), Enqueued: fakeTime, Message: &pb.Message{Id: fakeID, Payload: fmt.Appendf(nil, "m%d\t<&>", i+1)},
		})
	}
	return connect.NewResponse(res), nil
}

func (s *fakeServer) note(m proto.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = m
}

// settled refuses the tokens that begin with "bad" and "old".
func (s *fakeServer) settled(m proto.Message, tokens []string) (*connect.Response[pb.SettleResponse], error) {
	s.note(m)
	res := &pb.SettleResponse{}
	for _, token := range tokens {
		err := error(nil)
		switch {
		case strings.HasPrefix(token, "bad"):
			err = core.Errorf(core.CodeBadToken, "delivery token is not one of this cluster")
		case strings.HasPrefix(token, "old"):
			err = core.Errorf(core.CodeStale, "the message was delivered again since")
		default:
			continue
		}
		res.Failures = append(res.Failures, &pb.SettleResponse_Failure{Token: token, Error: convert.ErrorToProto(err)})
	}
	return connect.NewResponse(res), nil
}

func (s *fakeServer) Ack(_ context.Context, r *connect.Request[pb.AckRequest]) (*connect.Response[pb.SettleResponse], error) {
	return s.settled(r.Msg, r.Msg.Tokens)
}

// Cancel implements the service: a message of seq 1 is cancelled for two groups, of seq 2 one of them had it, others do
// not exist.
func (s *fakeServer) Cancel(_ context.Context, r *connect.Request[pb.CancelRequest]) (*connect.Response[pb.CancelResponse], error) {
	s.note(r.Msg)
	res := &pb.CancelResponse{}
	for _, receipt := range r.Msg.Receipts {
		one := &pb.CancelResult{Receipt: receipt, Groups: []*pb.CancelledFor{{Group: "billing", Outcome: "cancelled"}, {Group: "mail", Outcome: "cancelled"}}}
		switch {
		case strings.HasSuffix(receipt, ":2"):
			one.Groups[0].Outcome = "delivered"
		case strings.HasSuffix(receipt, ":4"):
			one.Groups = nil
		case !strings.HasSuffix(receipt, ":1"):
			one.Groups, one.Error = nil, convert.ErrorToProto(core.Errorf(core.CodeNotFound, "message %s does not exist", receipt))
		}
		res.Results = append(res.Results, one)
	}
	return connect.NewResponse(res), nil
}

func (s *fakeServer) Nack(_ context.Context, r *connect.Request[pb.NackRequest]) (*connect.Response[pb.SettleResponse], error) {
	return s.settled(r.Msg, r.Msg.Tokens)
}

func (s *fakeServer) Reject(_ context.Context, r *connect.Request[pb.RejectRequest]) (*connect.Response[pb.SettleResponse], error) {
	return s.settled(r.Msg, r.Msg.Tokens)
}

func (s *fakeServer) Extend(_ context.Context, r *connect.Request[pb.ExtendRequest]) (*connect.Response[pb.SettleResponse], error) {
	return s.settled(r.Msg, r.Msg.Tokens)
}
