package frontend

import (
	"context"
	"slices"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/words"
	"github.com/columbamq/columba/metadata"
)

// Parts of a listing of delayed messages, in their order. A page is of one part, and its token begins with it.
const (
	partWaiting = "waiting:" // what the output hosts of the group hold; the token goes on with a receipt
	partPublish = "publish:" // what was published for later; a receipt, "@", and when it is due
	partRetry   = "retry:"   // the retry queue of the group; a receipt
)

// ListDelayed answers a page of the messages that wait for their time. Output hosts read them.
func (s *service) ListDelayed(ctx context.Context, req *connect.Request[pb.ListDelayedRequest]) (*connect.Response[pb.ListDelayedResponse], error) {
	m := req.Msg
	part, after, err := delayedPart(m)
	if err != nil {
		return nil, err
	}
	var group *metadata.GroupRecord
	if m.GetGroup() != "" {
		_, g, err := s.group(ctx, m.GetQueue(), m.GetGroup())
		if err != nil {
			return nil, err
		}
		group = &g
	}
	var out *pb.ListDelayedResponse
	switch part {
	case partWaiting:
		out, err = s.delayedHeld(ctx, m, group, after)
	case partPublish:
		out, err = s.delayedByPublish(ctx, m, group, after)
	default:
		out, err = s.delayedByRetry(ctx, m, group, after)
	}
	if err != nil {
		return nil, err
	}
	if m.GetId() != "" {
		out.Messages = slices.DeleteFunc(out.Messages, func(x *pb.DelayedMessage) bool { return x.GetId() != m.GetId() })
	}
	return connect.NewResponse(out), nil
}

// delayedPart checks the page that is asked for, and answers its part and where it goes on.
func delayedPart(m *pb.ListDelayedRequest) (part, after string, err error) {
	if id := m.GetId(); id != "" {
		if _, err := core.ParseID(id); err != nil {
			return "", "", err
		}
	}
	token := m.GetAfter()
	if token == "" {
		if token = partPublish; m.GetGroup() != "" {
			token = partWaiting
		}
	}
	for _, part := range []string{partWaiting, partPublish, partRetry} {
		rest, is := strings.CutPrefix(token, part)
		if !is || m.GetGroup() == "" && part != partPublish {
			continue
		}
		receipt := rest
		if part == partPublish {
			receipt, _, _ = strings.Cut(rest, "@")
		}
		return part, rest, checkPage(receipt, m.GetLimit())
	}
	return "", "", core.Errorf(core.CodeBadArgument, "the page token is none of this list; begin with an empty one")
}

// delayedHeld are those that the owners of the group's shares hold: each page is of all owners.
func (s *service) delayedHeld(ctx context.Context, m *pb.ListDelayedRequest, group *metadata.GroupRecord, after string) (*pb.ListDelayedResponse, error) {
	q, err := s.lookUp(ctx, group.Spec.Queue)
	if err != nil {
		return nil, err
	}
	extents, err := s.gauge().OfQueue(ctx, q.ID, core.GroupID{})
	if err != nil {
		return nil, err
	}
	w, err := s.workAndParked(ctx, *group, extents)
	if err != nil {
		return nil, err
	}
	req := &pb.ListWaitingRequest{Queue: group.Spec.Queue, Group: group.Spec.Name, After: after, Limit: m.GetLimit()}
	var mu sync.Mutex
	out, upTo := &pb.ListDelayedResponse{}, ""
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for _, o := range w.owners {
		if o.shares == 0 {
			continue
		}
		g.Go(func() error {
			page, err := askOne(gctx, o.Host, askTimeout, req, func(addr string) rpc[pb.ListWaitingRequest, pb.ListWaitingResponse] {
				return s.peers.Output(addr).ListWaiting
			})
			if err != nil {
				return core.Errorf(core.CodeOf(err), "delayed messages of group %s of queue %s at %s: %w", group.Spec.Name, group.Spec.Queue, o.ID, err)
			}
			mu.Lock()
			defer mu.Unlock()
			out.Messages = append(out.Messages, page.GetMessages()...)
			if next := page.GetNext(); next != "" && (upTo == "" || compareReceipts(next, upTo) < 0) {
				upTo = next
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(out.Messages, func(a, b *pb.DelayedMessage) int { return compareReceipts(a.GetReceipt(), b.GetReceipt()) })
	if upTo == "" {
		out.Next = partPublish
		return out, nil
	}
	// An owner has more behind upTo. What others have there comes with the next page.
	out.Messages = slices.DeleteFunc(out.Messages, func(x *pb.DelayedMessage) bool { return compareReceipts(x.GetReceipt(), upTo) > 0 })
	out.Next = partWaiting + upTo
	return out, nil
}

// compareReceipts orders receipts that hosts made by extent and seq.
func compareReceipts(a, b string) int {
	x, _ := core.ParseReceipt(a)
	y, _ := core.ParseReceipt(b)
	if order := strings.Compare(x.Extent.String(), y.Extent.String()); order != 0 {
		return order
	}
	switch {
	case x.Seq < y.Seq:
		return -1
	case x.Seq > y.Seq:
		return 1
	}
	return 0
}

// delayedByPublish are those of the queue that were published for later, without those that a group does not get.
func (s *service) delayedByPublish(ctx context.Context, m *pb.ListDelayedRequest, group *metadata.GroupRecord, after string) (*pb.ListDelayedResponse, error) {
	path, err := core.ParseAnyQueuePath(m.GetQueue())
	if err != nil {
		return nil, err
	}
	q, err := s.lookUp(ctx, path)
	if err != nil {
		return nil, err
	}
	req := &pb.ListTimersRequest{Queue: path, After: after, Limit: m.GetLimit()}
	page, err := ask(ctx, s.ranked(roleOutput, q.ID.ID), roleOutput, req, func(addr string) rpc[pb.ListTimersRequest, pb.PeekResponse] {
		return s.peers.Output(addr).ListTimers
	})
	if err != nil {
		return nil, err
	}
	source := words.SourcePublish
	if _, _, retry := core.SplitRetryPath(path); retry {
		source = words.SourceRetry
	}
	out := &pb.ListDelayedResponse{}
	for _, x := range page.GetMessages() {
		if group != nil && beforeStart(*group, x.GetEnqueued().AsTime()) {
			continue
		}
		message := x.GetMessage()
		due := message.GetDeliverAt()
		message.DeliverAt = nil
		out.Messages = append(out.Messages, &pb.DelayedMessage{
			Id: message.GetId(), Receipt: x.GetReceipt(), Source: source, Due: due, Message: message, Enqueued: x.GetEnqueued(),
		})
	}
	switch next := page.GetNext(); {
	case next != "":
		out.Next = partPublish + next
	case group != nil:
		out.Next = partRetry
	}
	return out, nil
}

// delayedByRetry are those of the group's retry queue.
func (s *service) delayedByRetry(ctx context.Context, m *pb.ListDelayedRequest, group *metadata.GroupRecord, after string) (*pb.ListDelayedResponse, error) {
	req := &pb.ListParkedRequest{Queue: group.Spec.Queue, Group: group.Spec.Name, After: after, Limit: m.GetLimit(), Id: m.GetId()}
	page, err := ask(ctx, s.ranked(roleOutput, group.ID.ID), roleOutput, req, func(addr string) rpc[pb.ListParkedRequest, pb.ListParkedResponse] {
		return s.peers.Output(addr).ListParked
	})
	if err != nil {
		return nil, err
	}
	out := &pb.ListDelayedResponse{}
	for _, p := range page.GetMessages() {
		message := p.GetMessage()
		message.DeliverAt = nil
		out.Messages = append(out.Messages, &pb.DelayedMessage{
			Id: p.GetId(), Receipt: p.GetReceipt(), Source: words.SourceRetry, Due: p.GetUntil(), Message: message, Enqueued: p.GetFirstEnqueued(), Attempts: p.GetAttempts(),
			Reason: p.GetReason(), Error: p.GetError(), LastConsumer: p.GetLastConsumer(), Origin: p.GetOrigin(), DelayedSince: p.GetParkedSince(),
		})
	}
	if next := page.GetNext(); next != "" {
		out.Next = partRetry + next
	}
	return out, nil
}
