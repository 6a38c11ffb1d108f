package outputhost

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost/cancels"
)

// service answers the output host's RPCs.
type service struct{ h *Host }

func (s *service) Assign(ctx context.Context, req *connect.Request[pb.AssignRequest]) (*connect.Response[pb.AssignResponse], error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	return respond(s.h.assign(ctx, req.Msg))
}

// inTime ends early enough for an answer that says what was resumed until then.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	end, some := ctx.Deadline()
	if !some {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-time.Until(end)/4))
}

func (s *service) Pull(ctx context.Context, req *connect.Request[pb.PullRequest]) (*connect.Response[pb.PullResponse], error) {
	most, wait := int(req.Msg.MaxMessages), req.Msg.Wait.AsDuration()
	if most == 0 {
		most = 1
	}
	if most < 1 || most > maxPull || wait < 0 || wait > maxPullWait {
		return nil, convert.RPCError(core.Errorf(core.CodeBadArgument, "a pull takes 1 … %d messages and waits up to %s", maxPull, maxPullWait))
	}
	return ofGroup(ctx, s.h, req.Msg.Queue, req.Msg.Group, func(g *group) (*pb.PullResponse, error) {
		messages, err := g.pull(ctx, most, wait)
		return &pb.PullResponse{Messages: messages}, err
	})
}

func (s *service) Settle(ctx context.Context, req *connect.Request[pb.SettleRequest]) (*connect.Response[pb.SettleResponse], error) {
	if n := len(req.Msg.Tokens); n > maxTokens {
		return nil, convert.RPCError(core.Errorf(core.CodeBadArgument, "%d tokens in one call; at most %d are allowed", n, maxTokens))
	}
	return connect.NewResponse(&pb.SettleResponse{Failures: s.h.settleTokens(ctx, req.Msg)}), nil
}

func (s *service) GetDepth(ctx context.Context, req *connect.Request[pb.GetDepthRequest]) (*connect.Response[pb.GetDepthResponse], error) {
	return respond(s.depths(ctx, req.Msg.Queue, req.Msg.Group))
}

// depths are those of a group, or, without a name, of all groups of a queue.
func (s *service) depths(ctx context.Context, queue, group string) (*pb.GetDepthResponse, error) {
	names := []string{group}
	if group == "" {
		id, err := s.h.queueID(ctx, queue)
		if err != nil {
			return nil, err
		}
		names, err = s.h.groupNames(ctx, id, metadata.Quorum) // one copy of the metadata may lack some
		if silent(err) {
			names, err = s.h.groupNames(ctx, id, metadata.One)
		}
		if err != nil {
			return nil, err
		}
	}
	out := &pb.GetDepthResponse{}
	for _, name := range names {
		g, err := s.h.lookUp(ctx, queue, name)
		if err != nil {
			return nil, err
		}
		d, err := s.h.inspector.Depth(ctx, inspectedGroup{g})
		g.release()
		if err != nil {
			return nil, err
		}
		out.Groups = append(out.Groups, d)
	}
	return out, nil
}

// groupNames lists the groups of a queue.
func (h *Host) groupNames(ctx context.Context, queue core.QueueID, c metadata.Consistency) (names []string, err error) {
	for r, err := range metadata.All[metadata.GroupRecord](ctx, h.deps.Meta, metadata.Groups, queue.String(), c) {
		if err != nil {
			return nil, err
		}
		if r.Value.Started && r.Value.Spec.Status != core.StatusDeleted {
			names = append(names, r.Value.Spec.Name)
		}
	}
	return names, nil
}

func (s *service) WhyStuck(ctx context.Context, req *connect.Request[pb.WhyStuckRequest]) (*connect.Response[pb.WhyStuckResponse], error) {
	return ofGroup(ctx, s.h, req.Msg.Queue, req.Msg.Group, func(g *group) (*pb.WhyStuckResponse, error) { return s.h.inspector.WhyStuck(ctx, inspectedGroup{g}) })
}

func (s *service) GetStanding(ctx context.Context, req *connect.Request[pb.StandingRequest]) (*connect.Response[pb.Standing], error) {
	at, err := core.ParseReceipt(req.Msg.Receipt)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return ofGroup(ctx, s.h, req.Msg.Queue, req.Msg.Group, func(g *group) (*pb.Standing, error) { return s.h.inspector.Status(inspectedGroup{g}, at) })
}

func (s *service) CountShares(ctx context.Context, req *connect.Request[pb.CountSharesRequest]) (*connect.Response[pb.CountSharesResponse], error) {
	return respond(s.h.inspector.CountShares(ctx, req.Msg))
}

func (s *service) LimitRetries(_ context.Context, req *connect.Request[pb.LimitRetriesRequest]) (*connect.Response[pb.LimitRetriesResponse], error) {
	return respond(&pb.LimitRetriesResponse{}, s.h.limitRetries(req.Msg))
}

func (s *service) Peek(ctx context.Context, req *connect.Request[pb.PeekRequest]) (*connect.Response[pb.PeekResponse], error) {
	return respond(s.h.inspector.Peek(ctx, req.Msg))
}

func (s *service) ListDeadLetters(ctx context.Context, req *connect.Request[pb.ListDeadLettersRequest]) (*connect.Response[pb.ListDeadLettersResponse], error) {
	return respond(s.h.inspector.ListDeadLetters(ctx, req.Msg))
}

func (s *service) SelectDeadLetters(ctx context.Context, req *connect.Request[pb.SelectDeadLettersRequest]) (*connect.Response[pb.SelectDeadLettersResponse], error) {
	return respond(s.h.inspector.SelectDeadLetters(ctx, req.Msg))
}

func (s *service) ListRetryQueue(ctx context.Context, req *connect.Request[pb.ListRetryQueueRequest]) (*connect.Response[pb.ListRetryQueueResponse], error) {
	return respond(s.h.inspector.ListRetryQueue(ctx, req.Msg))
}

func (s *service) ListTimers(ctx context.Context, req *connect.Request[pb.ListTimersRequest]) (*connect.Response[pb.PeekResponse], error) {
	return respond(s.h.inspector.ListTimers(ctx, req.Msg))
}

func (s *service) ListWaiting(ctx context.Context, req *connect.Request[pb.ListWaitingRequest]) (*connect.Response[pb.ListWaitingResponse], error) {
	return respond(s.h.inspector.ListWaiting(ctx, req.Msg))
}

// ofGroup is the answer of a call about the group that it names.
func ofGroup[T any](ctx context.Context, h *Host, queue, name string, f func(*group) (*T, error)) (*connect.Response[T], error) {
	g, err := h.lookUp(ctx, queue, name)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	defer g.release()
	return respond(f(g))
}

// respond is the answer of a call.
func respond[T any](out *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(out), nil
}

func (s *service) HoldTimers(_ context.Context, req *connect.Request[pb.HoldTimersRequest]) (*connect.Response[pb.HoldTimersResponse], error) {
	extent, err := core.IDFromBytes(req.Msg.Extent)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	if n := len(req.Msg.Messages); n > maxTokens {
		return nil, convert.RPCError(core.Errorf(core.CodeBadArgument, "%d messages in one call; at most %d are allowed", n, maxTokens))
	}
	out, asked := &pb.HoldTimersResponse{}, make(map[core.ID]bool)
	for _, b := range req.Msg.Groups {
		group, err := core.IDFromBytes(b)
		if err != nil {
			return nil, convert.RPCError(err)
		}
		if asked[group] { // an answer is as long as its messages for each group that is here, and not for each that is named
			continue
		}
		asked[group] = true
		if hold := s.h.holdTimers(core.GroupID{ID: group}, core.ExtentID{ID: extent}, req.Msg.Messages); hold != nil {
			out.Groups = append(out.Groups, hold)
		}
	}
	return connect.NewResponse(out), nil
}

// holdTimers withholds messages in a group's share; nil when that is not here.
func (h *Host) holdTimers(group core.GroupID, extent core.ExtentID, messages []*pb.HoldTimersRequest_Timer) *pb.HoldTimersResponse_GroupHold {
	g := h.loaded(group)
	if g == nil {
		return nil
	}
	now := h.deps.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.mu.shares[extent]
	if s == nil {
		return nil
	}
	out := &pb.HoldTimersResponse_GroupHold{Group: group.ID[:], Counter: s.generation}
	for _, m := range messages {
		out.Messages = append(out.Messages, cancels.Hold(s.rules, core.Seq(m.Seq), time.UnixMilli(m.Due), time.Unix(0, s.began), now))
	}
	return out
}

func (s *service) FollowCancels(ctx context.Context, req *connect.Request[pb.FollowCancelsRequest]) (*connect.Response[pb.FollowCancelsResponse], error) {
	extent, err := core.IDFromBytes(req.Msg.Extent)
	if err == nil {
		err = s.h.followCancels(ctx, core.ExtentID{ID: extent})
	}
	return respond(&pb.FollowCancelsResponse{}, err)
}

// followCancels has the shares of an extent do what was decided of its messages.
func (h *Host) followCancels(ctx context.Context, extent core.ExtentID) error {
	until := make(map[*share]uint64)
	for _, g := range h.groupList() {
		g.mu.Lock()
		if s := g.mu.shares[extent]; s != nil && s.timers() {
			until[s] = s.rules.Withholds()
		}
		g.mu.Unlock()
	}
	if len(until) == 0 {
		return nil
	}
	decided, err := h.cancels.Read(ctx, extent)
	if err != nil {
		return err
	}
	if decided, err = h.cancels.End(ctx, extent, decided); err != nil {
		return err
	}
	now := h.deps.Now()
	for s, n := range until {
		s.group.mu.Lock()
		if !s.removed {
			decided.Follow(s.rules, s.group.id, n, now)
		}
		s.group.mu.Unlock()
		s.group.pump()
	}
	return nil
}

// followAllCancels does so for all extents of which messages are withheld.
func (h *Host) followAllCancels(ctx context.Context, groups []*group) error {
	var extents []core.ExtentID
	for _, g := range groups {
		g.mu.Lock()
		for id, s := range g.mu.shares {
			if s.rules.Withheld() > 0 && !slices.Contains(extents, id) {
				extents = append(extents, id)
			}
		}
		g.mu.Unlock()
	}
	for _, id := range extents {
		if err := h.followCancels(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// maxRetryCounts bounds the groups that one call of LimitRetries tells of.
const maxRetryCounts = 20_000

// limitRetries takes over how many retries groups have, as a controller has just counted them. Groups that it does not
// tell of have few, unless another controller counts them. First deliveries of a group go on when that allows them.
func (h *Host) limitRetries(req *pb.LimitRetriesRequest) error {
	switch run := h.deps.Members.Self().Run; {
	case !bytes.Equal(req.Run, run.ID[:]):
		return core.Errorf(core.CodeStale, "the counts are for another run of this output host")
	case len(req.Groups) > maxRetryCounts || len(req.Left) > maxRetryCounts:
		return core.Errorf(core.CodeTooLarge, "%d groups in one call; at most %d are allowed", max(len(req.Groups), len(req.Left)), maxRetryCounts)
	}
	if c, there := membership.Find(h.deps.Members, core.HostID(req.Controller)); !there || !c.Has("controller") {
		return core.Errorf(core.CodeStale, "%q is not among the controllers that this output host sees, so its counts of retries do not count; it tells them again in its next round", req.Controller)
	}
	told := make(map[core.GroupID]*pb.GroupRetries, len(req.Groups))
	for _, c := range req.Groups {
		id, err := core.IDFromBytes(c.Group)
		if err != nil {
			return err
		}
		told[core.GroupID{ID: id}] = c
	}
	left := make(map[core.GroupID]bool, len(req.Left))
	for _, b := range req.Left {
		id, err := core.IDFromBytes(b)
		if err != nil {
			return err
		}
		left[core.GroupID{ID: id}] = true
	}
	now := h.deps.Now()
	for _, g := range h.groupList() {
		c := told[g.id]
		g.mu.Lock()
		if !g.countedBy(core.HostID(req.Controller), c != nil, left[g.id], now) {
			g.mu.Unlock()
			continue
		}
		before := g.mu.rules.RetryLimit().Reached
		g.mu.rules.Retries(c.GetRetries(), int(min(cmp.Or(c.GetOwners(), req.Hosts), math.MaxInt16)), now)
		goesOn := before && !g.mu.rules.RetryLimit().Reached
		g.mu.Unlock()
		if goesOn {
			g.pump()
		}
	}
	return nil
}

// retryCounter is the controller that told of many retries of a group last.
type retryCounter struct {
	controller core.HostID
	until      time.Time // what it told stands so long
}

// countedBy notes what a controller tells of the group: that it has many retries; that another controller counts it
// from now on; or nothing. It reports whether that counts: nothing does not while the word of another controller
// stands.
func (g *group) countedBy(controller core.HostID, many, left bool, now time.Time) bool {
	r := g.mu.counter
	own := r != nil && r.controller == controller
	switch {
	case many:
		g.mu.counter = &retryCounter{controller, now.Add(dispatch.RetriesKnownFor)}
		return true
	case left && own:
		r.controller = ""
	}
	return !left && (r == nil || own || !now.Before(r.until))
}
