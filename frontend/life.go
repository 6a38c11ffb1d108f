package frontend

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/core/cancel"
	"github.com/columbamq/columba/core/words"
	"github.com/columbamq/columba/frontend/lengths"
	"github.com/columbamq/columba/frontend/removal"
	"github.com/columbamq/columba/metadata"
)

// These words say whether a message is stored at its receipt.
const (
	storedCommitted = "committed"
	storedNot       = "not_committed"
	storedGone      = "gone"
	storedUnknown   = "unknown"
)

// GetMessage answers where a message is stored, its contents, and its state in each group of its queue.
func (s *service) GetMessage(ctx context.Context, req *connect.Request[pb.GetMessageRequest]) (*connect.Response[pb.MessageInfo], error) {
	at, err := core.ParseReceipt(req.Msg.GetReceipt())
	if err != nil {
		return nil, err
	}
	e, err := s.findExtent(ctx, at.Extent)
	if err != nil {
		return nil, err
	}
	path, err := s.pathOf(ctx, e.Queue)
	if err != nil {
		return nil, err
	}
	l, err := s.gauge().Sealed(ctx, e)
	if err != nil {
		return nil, err
	}
	if !l.Known {
		l.Last, l.Known = s.gauge().Committed(ctx, e)
	}
	if at.Seq == 0 || l.Seal.State.HasEnd() && at.Seq > l.Last {
		return nil, core.Errorf(core.CodeNotFound, "message %s does not exist: extent %s ends at %d", at, e.ID, l.Last)
	}
	out := &pb.MessageInfo{Receipt: at.String(), Queue: path, ExtentState: string(core.ExtentOpen), Stored: storedIn(l, at.Seq)}
	set(&out.ExtentState, string(l.Seal.State))
	for _, id := range l.Readers() {
		out.Stores = append(out.Stores, string(id))
	}
	if out.Detail, err = removal.Told(ctx, s.shown, l.Seal, at.Seq); err != nil {
		return nil, err
	}
	if out.Stored != storedGone && out.Detail == "" {
		s.readMessage(ctx, at, out)
	}
	if out.Groups, err = s.standings(ctx, at, l, out); err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// storedIn is whether an extent has a message.
func storedIn(l *lengths.Length, seq core.Seq) string {
	switch {
	case l.Seal.State == core.ExtentRetired:
		return storedGone
	case !l.Known:
		return storedUnknown
	case seq > l.Last:
		return storedNot
	}
	return storedCommitted
}

// readMessage has an output host read the message.
func (s *service) readMessage(ctx context.Context, at core.Receipt, out *pb.MessageInfo) {
	before := core.Receipt{Extent: at.Extent, Seq: at.Seq - 1}
	req := &pb.PeekRequest{Queue: out.Queue, After: before.String(), Limit: 1}
	resp, err := ask(ctx, s.ranked(roleOutput, at.Extent.ID), roleOutput, req, func(addr string) rpc[pb.PeekRequest, pb.PeekResponse] { return s.peers.Output(addr).Peek })
	switch found := resp.GetMessages(); {
	case err != nil:
		out.Detail = err.Error()
	case len(found) == 0 || found[0].GetReceipt() != out.Receipt:
		out.Detail = "no store lets it be read"
	default:
		out.Message, out.Enqueued, out.Bytes = found[0].GetMessage(), found[0].GetEnqueued(), uint64(len(found[0].GetMessage().GetPayload()))
	}
}

// standings are where a message stands in each group of its queue; none when the queue was deleted.
func (s *service) standings(ctx context.Context, at core.Receipt, l *lengths.Length, m *pb.MessageInfo) ([]*pb.Standing, error) {
	groups, err := s.readersOf(ctx, m.Queue, l.Queue)
	if err != nil {
		return nil, err
	}
	book, called, err := s.cancelled(ctx, l.Extent)
	if err != nil {
		return nil, err
	}
	out := make([]*pb.Standing, len(groups))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for i, group := range groups {
		g.Go(func() (err error) {
			if out[i], err = s.standing(gctx, group, at, l); err != nil {
				return err
			}
			out[i].Group, out[i].Receipt = group.Spec.Name, at.String()
			switch due := m.GetMessage().GetDeliverAt(); {
			case out[i].State == words.Settled:
				s.explainSettled(gctx, group, m, out[i])
			case out[i].State == words.Unread && due != nil && due.AsTime().After(s.now()):
				out[i].State, out[i].Until = words.Delayed, due
			}
			callOff(out[i], book.Outcome(called, at.Seq, group.ID))
			if m.Message != nil {
				out[i].Id = m.Message.GetId()
				if l.Queue != group.Retry || out[i].Enqueued == nil {
					out[i].Enqueued = m.Enqueued
				}
			}
			if waits := out[i].State == words.Unread || out[i].State == words.Delayed; waits && l.Queue == group.Retry && out[i].Attempts == 0 {
				s.addAttempts(gctx, group, m, out[i])
			}
			s.setAge(out[i])
			return nil
		})
	}
	return out, g.Wait()
}

// cancelled is what was called off of an extent.
func (s *service) cancelled(ctx context.Context, e core.Extent) (book cancel.Book, called *acklevel.Window, err error) {
	if e.Kind == core.KindTimer {
		book, _, err = metadata.Read[cancel.Book](ctx, s.meta, metadata.Cancels, metadata.CancelKey(e.ID), metadata.One)
		if err != nil && core.CodeOf(err) != core.CodeNotFound {
			return book, nil, core.Errorf(core.CodeOf(err), "look up what is cancelled of extent %s: %w", e.ID, err)
		}
	}
	called, err = book.Window()
	return book, called, err
}

// callOff is for a message of which the outcome was decided: one that was cancelled is, also before its owner has
// heard.
func callOff(st *pb.Standing, outcome cancel.Outcome) {
	if outcome == cancel.Cancelled && st.Attempts == 0 {
		st.State, st.Until = words.Cancelled, nil
	}
}

// standing is where a message stands in a group: as the owner of its share says, or else as it was saved last.
func (s *service) standing(ctx context.Context, group metadata.GroupRecord, at core.Receipt, l *lengths.Length) (*pb.Standing, error) {
	assigned, err := s.assigned(ctx, group.ID)
	if err != nil {
		return nil, err
	}
	w, err := s.work(ctx, group, assigned, []*lengths.Length{l})
	if err != nil {
		return nil, err
	}
	req := &pb.StandingRequest{Queue: group.Spec.Queue, Group: group.Spec.Name, Receipt: at.String()}
	for _, o := range w.owners {
		if o.shares == 0 {
			continue
		}
		found, err := askOne(ctx, o.Host, askTimeout, req, func(addr string) rpc[pb.StandingRequest, pb.Standing] { return s.peers.Output(addr).GetStanding })
		if err == nil {
			return found, nil
		}
		s.log.Debug("the owner of a share does not say where a message stands", "host", o.ID, "extent", at.Extent, "group", group.Spec.Name, "err", err)
	}
	done, err := s.consumed(ctx, group)
	if err != nil {
		return nil, err
	}
	if _, consumed := done[l.ID]; consumed || l.Seal.State == core.ExtentRetired {
		return &pb.Standing{State: words.Settled}, nil
	}
	state, err := s.saved(ctx, group, l.Extent)
	if err != nil {
		return nil, err
	}
	return savedStanding(l.ID, state.Standing(at.Seq)), nil
}

// explainSettled finds out what became of a message that a group has settled, as far as that can be told.
func (s *service) explainSettled(ctx context.Context, group metadata.GroupRecord, m *pb.MessageInfo, out *pb.Standing) {
	out.State = words.Settled
	if s.explainDead(ctx, group, m, out) {
		return
	}
	if m.Enqueued == nil || s.explainDelayedRetry(ctx, group, m, out) {
		return
	}
	if beforeStart(group, m.Enqueued.AsTime()) {
		out.State = words.BeforeStart
	}
}

// beforeStart reports whether a message was published before the start of a group, which does not get it.
func beforeStart(group metadata.GroupRecord, published time.Time) bool {
	start := group.Spec.Start
	return start.Mode == core.StartTime && published.Before(start.At) || start.Mode == core.StartLatest && published.Before(group.Created)
}

// explainDead finds out whether a message is a dead letter of the group, which it reports, or was one that an operation
// took.
func (s *service) explainDead(ctx context.Context, group metadata.GroupRecord, m *pb.MessageInfo, out *pb.Standing) bool {
	id := m.GetMessage().GetId()
	if id == "" || group.Spec.OnDLQ() {
		return false
	}
	req := &pb.ListDeadLettersRequest{Queue: group.Spec.Queue, Group: group.Spec.Name, Id: id, Taken: true}
	letters, err := ask(ctx, s.ranked(roleOutput, group.DLQ.ID), roleOutput, req, func(addr string) rpc[pb.ListDeadLettersRequest, pb.ListDeadLettersResponse] {
		return s.peers.Output(addr).ListDeadLetters
	})
	if err != nil {
		s.log.Debug("cannot look for a dead letter", "queue", group.Spec.Queue, "group", group.Spec.Name, "err", err)
		return false
	}
	taken := ""
	for _, d := range letters.GetDeadLetters() {
		switch {
		case d.GetOrigin() != m.Receipt:
		case d.GetTaken():
			taken = d.GetReceipt()
		default:
			out.State, out.DeadLetter, out.Attempts, out.LastFailure, out.LastError = words.Dead, d.GetReceipt(), d.GetAttempts(), d.GetReason(), d.GetError()
			return true
		}
	}
	switch {
	case taken != "":
		out.Detail = "it was dead letter " + taken + "; `columba show message` of that says what became of it"
		if why, err := s.taken(ctx, taken); err == nil && why != "" {
			out.Detail = "it was dead letter " + taken + ": " + why
		}
	case letters.GetNext() != "":
		out.Detail = fmt.Sprintf("not among the first %d dead letters of the group; dlq list --id looks through all", letters.GetScanned())
	}
	return false
}

// taken says what took a message out of its queue.
func (s *service) taken(ctx context.Context, receipt string) (string, error) {
	at, err := core.ParseReceipt(receipt)
	if err != nil {
		return "", err
	}
	e, err := s.findExtent(ctx, at.Extent)
	if err != nil {
		return "", err
	}
	l, err := s.gauge().Sealed(ctx, e)
	if err != nil {
		return "", err
	}
	return removal.Told(ctx, s.shown, l.Seal, at.Seq)
}

// readersOf are the groups that read a queue, which has that id; none when it was deleted.
func (s *service) readersOf(ctx context.Context, path string, queue core.QueueID) (out []metadata.GroupRecord, err error) {
	id := queue
	if of, name, ok := core.SplitRetryPath(path); ok {
		var g metadata.GroupRecord
		_, g, err = s.groupToShow(ctx, of, name)
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

// explainDelayedRetry finds out where a message stands that is in a group's retry queue, the last time, and reports
// whether there is one.
func (s *service) explainDelayedRetry(ctx context.Context, group metadata.GroupRecord, m *pb.MessageInfo, out *pb.Standing) bool {
	id := m.GetMessage().GetId()
	if id == "" || group.Retry.IsZero() {
		return false
	}
	req := &pb.ListRetryQueueRequest{Queue: group.Spec.Queue, Group: group.Spec.Name, Id: id, Due: true}
	found, err := ask(ctx, s.ranked(roleOutput, group.ID.ID), roleOutput, req, func(addr string) rpc[pb.ListRetryQueueRequest, pb.ListRetryQueueResponse] {
		return s.peers.Output(addr).ListRetryQueue
	})
	if err != nil {
		s.log.Debug("cannot look for a message in a retry queue", "queue", group.Spec.Queue, "group", group.Spec.Name, "err", err)
		return false
	}
	var last *pb.RetryQueueMessage
	for _, p := range found.GetMessages() {
		if p.GetOrigin() == m.Receipt && p.GetAttempts() >= last.GetAttempts() {
			last = p
		}
	}
	if last == nil {
		if found.GetNext() != "" {
			out.Detail = joined(out.Detail, fmt.Sprintf("not among the first %d messages of the group's retry queue; list delayed --id looks through all", found.GetLooked()))
		}
		return false
	}
	at, err := core.ParseReceipt(last.GetReceipt())
	if err != nil {
		return false
	}
	now, err := s.standingAt(ctx, group, at)
	if err != nil || now.GetState() == words.Settled {
		return false
	}
	if now.GetState() == words.Cancelled && group.Rewound() { // it may have been delivered anew, and settled, after the group was sent back
		out.Detail = joined(out.Detail, "its retry "+last.Receipt+" was cancelled")
		return false
	}
	out.State, out.RetryReceipt, out.Attempts, out.LastFailure, out.LastError, out.Owner = now.GetState(), last.Receipt, last.Attempts, last.Reason, last.Error, now.GetOwner()
	out.Until, out.Holder = now.GetUntil(), now.GetHolder()
	if now.GetAttempts() > 0 { // it has come back
		out.Attempts, out.LastFailure, out.LastError = now.Attempts, now.LastFailure, now.LastError
	} else if now.State != words.Cancelled && last.GetUntil().AsTime().After(s.now()) {
		out.State, out.Until = words.Delayed, last.Until
	}
	return true
}

// addAttempts adds to the standing of a message of the retry queue that was not delivered since how its attempts before
// ended, and when it was published.
func (s *service) addAttempts(ctx context.Context, group metadata.GroupRecord, m *pb.MessageInfo, out *pb.Standing) {
	at, err := core.ParseReceipt(m.Receipt)
	if err != nil {
		return
	}
	before := core.Receipt{Extent: at.Extent, Seq: at.Seq - 1}
	req := &pb.ListRetryQueueRequest{Queue: group.Spec.Queue, Group: group.Spec.Name, After: before.String(), Limit: 1, Due: true}
	found, err := ask(ctx, s.ranked(roleOutput, group.ID.ID), roleOutput, req, func(addr string) rpc[pb.ListRetryQueueRequest, pb.ListRetryQueueResponse] {
		return s.peers.Output(addr).ListRetryQueue
	})
	if err != nil {
		s.log.Debug("cannot look up a message in a retry queue", "queue", group.Spec.Queue, "group", group.Spec.Name, "err", err)
		return
	}
	for _, p := range found.GetMessages() {
		if p.GetReceipt() == m.Receipt {
			out.Attempts, out.LastFailure, out.LastError, out.Enqueued = p.GetAttempts(), p.GetReason(), p.GetError(), p.GetFirstEnqueued()
		}
	}
}

// joined is one detail behind another.
func joined(before, detail string) string {
	if before == "" {
		return detail
	}
	return before + "; " + detail
}

// standingAt is where a message of the group's retry queue stands in it.
func (s *service) standingAt(ctx context.Context, group metadata.GroupRecord, at core.Receipt) (*pb.Standing, error) {
	e, err := s.findExtent(ctx, at.Extent)
	if err != nil {
		return nil, err
	}
	l, err := s.gauge().Sealed(ctx, e)
	if err != nil {
		return nil, err
	}
	st, err := s.standing(ctx, group, at, l)
	if err != nil {
		return nil, err
	}
	book, called, err := s.cancelled(ctx, e)
	if err != nil {
		return nil, err
	}
	callOff(st, book.Outcome(called, at.Seq, group.ID))
	return st, nil
}
