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

// Parts of a listing of delayed messages, in their order. A page token begins with the part in which it goes on.
const (
	partWaiting = "waiting:" // messages that the output hosts of the group hold; the token goes on with a receipt
	partPublish = "publish:" // messages that were published for later; a receipt, "@", and when it is due
	partRetry   = "retry:"   // messages of the group's retry queue; a receipt
)

// ListDelayed answers a page of the delayed messages. A page goes on in the next part when one ends before the page is
// full. It has at most one call's worth of each part: so a page with a filter may be short, or empty, before the last.
func (s *service) ListDelayed(ctx context.Context, req *connect.Request[pb.ListDelayedRequest]) (*connect.Response[pb.ListDelayedResponse], error) {
	m := req.Msg
	part, after, err := delayedPart(m)
	if err != nil {
		return nil, err
	}
	limit, err := pageLimit(m.GetLimit())
	if err != nil {
		return nil, err
	}
	var group *metadata.GroupRecord
	if m.GetGroup() != "" {
		_, g, err := s.groupToShow(ctx, m.GetQueue(), m.GetGroup())
		if err != nil {
			return nil, err
		}
		group = &g
	}
	out := &pb.ListDelayedResponse{}
	for {
		page, err := s.delayedPage(ctx, m, group, part, after, int32(limit-len(out.Messages)))
		if err != nil {
			return nil, err
		}
		for _, x := range page.GetMessages() {
			if m.GetId() == "" || x.GetId() == m.GetId() {
				out.Messages = append(out.Messages, x)
			}
		}
		out.Next = page.GetNext()
		partEnded := out.Next == partPublish || out.Next == partRetry
		if !partEnded || len(out.Messages) >= limit {
			return connect.NewResponse(out), nil
		}
		part, after = out.Next, ""
	}
}

// delayedPage answers up to limit messages of one part. Its token is of the same part, or the beginning of the next
// one.
func (s *service) delayedPage(ctx context.Context, m *pb.ListDelayedRequest, group *metadata.GroupRecord, part, after string, limit int32) (*pb.ListDelayedResponse, error) {
	switch part {
	case partWaiting:
		return s.delayedHeld(ctx, group, after, limit)
	case partPublish:
		return s.delayedByPublish(ctx, m.GetQueue(), group, after, limit)
	}
	return s.delayedByRetry(ctx, group, m.GetId(), after, limit)
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
	return "", "", core.Errorf(core.CodeBadArgument, "the page token is not one that this list has returned; leave it out to begin with the first page")
}

// delayedHeld answers messages that the owners of the group's shares hold: each page is of all owners.
func (s *service) delayedHeld(ctx context.Context, group *metadata.GroupRecord, after string, limit int32) (*pb.ListDelayedResponse, error) {
	q, err := s.queueToShow(ctx, group.Spec.Queue)
	if err != nil {
		return nil, err
	}
	extents, err := s.gauge().Ends(ctx, q.ID, core.GroupID{})
	if err != nil {
		return nil, err
	}
	w, _, err := s.allWork(ctx, *group, extents)
	if err != nil {
		return nil, err
	}
	req := &pb.ListWaitingRequest{Queue: group.Spec.Queue, Group: group.Spec.Name, After: after, Limit: limit}
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
	if upTo != "" { // An owner has more behind upTo. What others have there comes with the next page.
		out.Messages = slices.DeleteFunc(out.Messages, func(x *pb.DelayedMessage) bool { return compareReceipts(x.GetReceipt(), upTo) > 0 })
	}
	if len(out.Messages) > int(limit) { // each owner answered up to the limit
		out.Messages = out.Messages[:limit]
		upTo = out.Messages[limit-1].GetReceipt()
	}
	out.Next = partPublish
	if upTo != "" {
		out.Next = partWaiting + upTo
	}
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

// delayedByPublish answers messages of the queue that were published for later, without those that the group does not
// get.
func (s *service) delayedByPublish(ctx context.Context, queue string, group *metadata.GroupRecord, after string, limit int32) (*pb.ListDelayedResponse, error) {
	path, err := core.ParseAnyQueuePath(queue)
	if err != nil {
		return nil, err
	}
	q, err := s.queueToShow(ctx, path)
	if err != nil {
		return nil, err
	}
	req := &pb.ListTimersRequest{Queue: path, After: after, Limit: limit}
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

// delayedByRetry answers messages of the group's retry queue.
func (s *service) delayedByRetry(ctx context.Context, group *metadata.GroupRecord, id, after string, limit int32) (*pb.ListDelayedResponse, error) {
	req := &pb.ListRetryQueueRequest{Queue: group.Spec.Queue, Group: group.Spec.Name, After: after, Limit: limit, Id: id}
	page, err := ask(ctx, s.ranked(roleOutput, group.ID.ID), roleOutput, req, func(addr string) rpc[pb.ListRetryQueueRequest, pb.ListRetryQueueResponse] {
		return s.peers.Output(addr).ListRetryQueue
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
			Reason: p.GetReason(), Error: p.GetError(), LastConsumer: p.GetLastConsumer(), Origin: p.GetOrigin(), DelayedSince: p.GetDelayedSince(),
		})
	}
	if next := page.GetNext(); next != "" {
		out.Next = partRetry + next
	}
	return out, nil
}
