package frontend

import (
	"context"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/core/cancel"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/core/stuck"
	"github.com/columbamq/columba/metadata"
)

// finding is what one host, or the metadata, know of why a group does not go on.
type finding struct {
	*pb.WhyStuckResponse
	since time.Time // when its message was enqueued, or its extent made
}

// findings keeps the one of the oldest message. Safe for concurrent use.
type findings struct {
	mu struct {
		sync.Mutex
		oldest  finding
		extents uint32
	}
}

func (f *findings) add(x finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.extents += x.GetExtents()
	if f.mu.oldest.WhyStuckResponse == nil || x.since.Before(f.mu.oldest.since) {
		f.mu.oldest = x
	}
}

// WhyStuck names the oldest message that a group has not settled, and says why: as the owners of its shares see it, and of those without an
// owner as the metadata do.
func (s *service) WhyStuck(ctx context.Context, req *connect.Request[pb.WhyStuckRequest]) (*connect.Response[pb.WhyStuckResponse], error) {
	q, group, err := s.group(ctx, req.Msg.GetQueue(), req.Msg.GetGroup())
	if err != nil {
		return nil, err
	}
	extents, err := s.lengths(ctx, q.ID, core.GroupID{})
	if err != nil {
		return nil, err
	}
	w, err := s.workAndParked(ctx, group, extents)
	if err != nil {
		return nil, err
	}
	f, err := s.findings(ctx, group, w)
	if err != nil {
		return nil, err
	}
	out := f.mu.oldest.WhyStuckResponse
	if out == nil {
		out = &pb.WhyStuckResponse{Reason: string(stuck.Nothing), Text: stuck.Nothing.Text()}
	} else if !q.Spec.Status.CanConsume() || !group.Spec.Status.CanConsume() {
		out.Also = append([]string{out.Reason}, out.Also...)
		out.Reason, out.Text = string(stuck.Disabled), stuck.Disabled.Text()
	}
	out.Queue, out.Group, out.Extents = group.Spec.Queue, group.Spec.Name, f.mu.extents
	s.setAge(out.Message)
	return connect.NewResponse(out), nil
}

// findings asks all who know.
func (s *service) findings(ctx context.Context, group metadata.GroupRecord, w work) (*findings, error) {
	f := &findings{}
	req := &pb.WhyStuckRequest{Queue: group.Spec.Queue, Group: group.Spec.Name}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for _, o := range w.owners {
		g.Go(func() error {
			found, err := askOne(gctx, o.Host, askTimeout, req, func(addr string) rpc[pb.WhyStuckRequest, pb.WhyStuckResponse] { return s.peers.Output(addr).WhyStuck })
			switch {
			case err != nil && o.shares == 0:
			case err != nil:
				f.add(finding{&pb.WhyStuckResponse{
					Reason: string(stuck.OwnerSilent), Text: stuck.OwnerSilent.Text(), Detail: string(o.ID) + ": " + err.Error(), Extents: uint32(o.shares),
				}, o.oldest.ID.Time()})
			case found.GetMessage() != nil:
				f.add(finding{found, sinceOf(found.GetMessage())})
			}
			return nil
		})
	}
	for _, l := range w.alone {
		g.Go(func() error {
			found, err := s.ownerless(gctx, group, l)
			if err == nil && found != nil {
				f.add(finding{found, l.ID.Time()})
			}
			return err
		})
	}
	return f, g.Wait()
}

// sinceOf orders messages of different hosts; one that could not be read counts from when its extent was made.
func sinceOf(m *pb.Standing) time.Time {
	if m.GetEnqueued() != nil {
		return m.GetEnqueued().AsTime()
	}
	if at, err := core.ParseReceipt(m.GetReceipt()); err == nil {
		return at.Extent.ID.Time()
	}
	return time.Time{}
}

// ownerless is what the checkpoints say of a share that nobody owns; nil when nothing of it is left.
func (s *service) ownerless(ctx context.Context, group metadata.GroupRecord, l *length) (*pb.WhyStuckResponse, error) {
	state, err := s.saved(ctx, group, l.ID)
	if err != nil {
		return nil, err
	}
	seq := state.Frontier() + 1
	if l.known && seq > l.last {
		return nil, nil
	}
	return &pb.WhyStuckResponse{
		Reason: string(stuck.NoOwner), Text: stuck.NoOwner.Text(), Extents: 1, Message: savedStanding(l.ID, state.Standing(seq)),
	}, nil
}

// setAge tells how old a message is, by this host's clock.
func (s *service) setAge(m *pb.Standing) {
	if m.GetEnqueued() != nil {
		m.AgeMs = max(0, s.now().Sub(m.GetEnqueued().AsTime()).Milliseconds())
	}
}

// savedStanding is where a message stood when it was saved last.
func savedStanding(extent core.ExtentID, st dispatch.Standing) *pb.Standing {
	out := &pb.Standing{
		State: string(st.Place), Receipt: core.Receipt{Extent: extent, Seq: st.Seq}.String(), Attempts: int32(st.Attempts),
		LastFailure: st.Failure.String(), LastText: strings.ToValidUTF8(st.Text, "\uFFFD"),
	}
	if !st.Until.IsZero() {
		out.Until = timestamppb.New(st.Until)
	}
	if st.Place == dispatch.PlaceInFlight {
		out.Holder = &pb.Holder{}
	}
	return out
}

// What is said of where a message is stored.
const (
	storedCommitted = "committed"
	storedNot       = "not_committed"
	storedGone      = "gone"
	storedUnknown   = "unknown"
)

// Where a message of a group is that the group has done with.
const (
	stateSettled     = "settled"       // acked, or skipped, expired or dropped: groups keep no record of which
	stateDead        = "dead_lettered" // and still in the dead letter queue
	stateBeforeStart = "before_start"  // the group began behind it
	stateCancelled   = "cancelled"     // before it was handed out
)

// GetMessage tells the life of a message: where it is stored, what it is, and where it stands in each group of its queue.
func (s *service) GetMessage(ctx context.Context, req *connect.Request[pb.GetMessageRequest]) (*connect.Response[pb.MessageLife], error) {
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
	l := &length{Extent: e}
	if err := s.readSeals(ctx, []*length{l}); err != nil {
		return nil, err
	}
	if !l.known {
		l.last, l.known = s.committed(ctx, e)
	}
	if at.Seq == 0 || l.seal.State.HasEnd() && at.Seq > l.last {
		return nil, core.Errorf(core.CodeNotFound, "message %s does not exist: extent %s ends at %d", at, e.ID, l.last)
	}
	out := &pb.MessageLife{Receipt: at.String(), Queue: path, ExtentState: string(core.ExtentOpen), Stored: storedIn(l, at.Seq)}
	set(&out.ExtentState, string(l.seal.State))
	for _, id := range l.readers() {
		out.Stores = append(out.Stores, string(id))
	}
	if out.Stored != storedGone {
		s.readMessage(ctx, at, out)
	}
	if out.Groups, err = s.standings(ctx, at, l, out); err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// storedIn is whether an extent has a message.
func storedIn(l *length, seq core.Seq) string {
	switch {
	case l.seal.State == core.ExtentRetired:
		return storedGone
	case !l.known:
		return storedUnknown
	case seq > l.last:
		return storedNot
	}
	return storedCommitted
}

// readMessage has an output host read the message.
func (s *service) readMessage(ctx context.Context, at core.Receipt, out *pb.MessageLife) {
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
func (s *service) standings(ctx context.Context, at core.Receipt, l *length, m *pb.MessageLife) ([]*pb.Standing, error) {
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
			case out[i].State == string(dispatch.PlaceDone):
				s.explainSettled(gctx, group, m, out[i])
			case out[i].State == string(dispatch.PlaceUnread) && l.Queue == group.Retry && due.AsTime().After(s.now()):
				out[i].State, out[i].Until = string(dispatch.PlaceParked), due
			}
			if book.Outcome(called, at.Seq, group.ID) == cancel.Cancelled && out[i].Attempts == 0 { // also before its owner has heard
				out[i].State, out[i].Until = stateCancelled, nil
			}
			if m.Message != nil {
				out[i].Id, out[i].Enqueued = m.Message.GetId(), m.Enqueued
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

// standing is where a message stands in a group: as the owner of its share says, or else as it was saved last.
func (s *service) standing(ctx context.Context, group metadata.GroupRecord, at core.Receipt, l *length) (*pb.Standing, error) {
	w, err := s.work(ctx, group, []*length{l})
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
	if done[l.ID] || l.seal.State == core.ExtentRetired {
		return &pb.Standing{State: string(dispatch.PlaceDone)}, nil
	}
	state, err := s.saved(ctx, group, l.ID)
	if err != nil {
		return nil, err
	}
	return savedStanding(l.ID, state.Standing(at.Seq)), nil
}

// explainSettled finds out what became of a message that a group has settled, as far as that can be told.
func (s *service) explainSettled(ctx context.Context, group metadata.GroupRecord, m *pb.MessageLife, out *pb.Standing) {
	out.State = stateSettled
	if id := m.GetMessage().GetId(); id != "" {
		req := &pb.ListDeadLettersRequest{Queue: group.Spec.Queue, Group: group.Spec.Name, Id: id}
		letters, err := ask(ctx, s.ranked(roleOutput, group.DLQ.ID), roleOutput, req, func(addr string) rpc[pb.ListDeadLettersRequest, pb.ListDeadLettersResponse] {
			return s.peers.Output(addr).ListDeadLetters
		})
		if err != nil {
			s.log.Debug("cannot look for a dead letter", "queue", group.Spec.Queue, "group", group.Spec.Name, "err", err)
		}
		for _, d := range letters.GetDeadLetters() {
			if d.GetOrigin() == m.Receipt {
				out.State, out.DeadLetter, out.Attempts, out.LastFailure, out.LastText = stateDead, d.GetReceipt(), d.GetAttempts(), d.GetReason(), d.GetError()
				return
			}
		}
	}
	if m.Enqueued == nil || s.explainParked(ctx, group, m, out) {
		return
	}
	start, enqueued := group.Spec.Start, m.Enqueued.AsTime()
	if start.Mode == core.StartTime && enqueued.Before(start.At) || start.Mode == core.StartLatest && enqueued.Before(group.Created) {
		out.State = stateBeforeStart
	}
}
