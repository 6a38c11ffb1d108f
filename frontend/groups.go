package frontend

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// group is the queue and the group that may be used, as they are now; CodeNotFound names what is missing.
func (s *service) group(ctx context.Context, path, name string) (metadata.QueueRecord, metadata.GroupRecord, error) {
	if err := checkGroupNames(path, name); err != nil {
		return metadata.QueueRecord{}, metadata.GroupRecord{}, err
	}
	if q, err := s.copyOf(ctx, path); err == nil {
		q, g, err := s.groupOf(ctx, q, name, metadata.Serial)
		if core.CodeOf(err) != core.CodeNotFound { // else the copy may still have the queue that had the path before
			return q, g, err
		}
	}
	return s.groupNow(ctx, path, name)
}

// groupNow is group by reads of a majority alone.
func (s *service) groupNow(ctx context.Context, path, name string) (metadata.QueueRecord, metadata.GroupRecord, error) {
	_, q, err := s.resolve(ctx, path)
	if err != nil {
		return q, metadata.GroupRecord{}, err
	}
	return s.groupOf(ctx, q, name, metadata.Serial)
}

// groupToShow is group, or what one copy has while no majority of the metadata answers. It is for calls that change
// nothing.
func (s *service) groupToShow(ctx context.Context, path, name string) (q metadata.QueueRecord, g metadata.GroupRecord, err error) {
	if err := checkGroupNames(path, name); err != nil {
		return q, g, err
	}
	g, err = metadata.SerialOrOne(ctx, s.meta, func(ctx context.Context, c metadata.Consistency) (g metadata.GroupRecord, err error) {
		if c != metadata.One {
			q, g, err = s.group(ctx, path, name)
		} else if q, err = s.copyOf(ctx, path); err == nil {
			q, g, err = s.groupOf(ctx, q, name, c)
		}
		return g, err
	})
	return q, g, err
}

// groupOf is the group of a queue that may be used; CodeNotFound.
func (s *service) groupOf(ctx context.Context, q metadata.QueueRecord, name string, c metadata.Consistency) (metadata.QueueRecord, metadata.GroupRecord, error) {
	path := q.Spec.Path
	g, _, err := metadata.Read[metadata.GroupRecord](ctx, s.meta, metadata.Groups, metadata.GroupKey(q.ID, name), c)
	switch {
	case core.CodeOf(err) == core.CodeNotFound || err == nil && g.Spec.Status == core.StatusDeleted:
		return q, g, core.Errorf(core.CodeNotFound, "group %s of queue %s does not exist", name, path)
	case err != nil:
		return q, g, core.Errorf(core.CodeOf(err), "look up group %s of queue %s: %w", name, path, err)
	case !g.Started:
		return q, g, core.Errorf(core.CodeNotFound, "group %s of queue %s is half made; create it again with the same settings, or delete it", name, path)
	}
	return q, g, nil
}

// GetGroup looks a group up by its queue and name.
func (s *service) GetGroup(ctx context.Context, req *connect.Request[pb.GetGroupRequest]) (*connect.Response[pb.Group], error) {
	_, g, err := s.groupToShow(ctx, req.Msg.GetQueue(), req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(groupToProto(g)), nil
}

// ListGroups answers every group of a queue, half-made ones left out.
func (s *service) ListGroups(ctx context.Context, req *connect.Request[pb.ListGroupsRequest]) (*connect.Response[pb.ListGroupsResponse], error) {
	_, groups, err := s.groups(ctx, req.Msg.GetQueue())
	if err != nil {
		return nil, err
	}
	out := &pb.ListGroupsResponse{}
	for _, g := range groups {
		out.Groups = append(out.Groups, groupToProto(g))
	}
	return connect.NewResponse(out), nil
}

// groups is a queue and its groups that may be used, in order of name.
func (s *service) groups(ctx context.Context, path string) (metadata.QueueRecord, []metadata.GroupRecord, error) {
	path, err := core.ParseAnyQueuePath(path)
	if err != nil {
		return metadata.QueueRecord{}, nil, err
	}
	q, err := s.queueToShow(ctx, path)
	if err != nil {
		return q, nil, err
	}
	var out []metadata.GroupRecord
	for g, err := range metadata.All[metadata.GroupRecord](ctx, s.meta, metadata.Groups, q.ID.String(), metadata.One) {
		if err != nil {
			return q, nil, core.Errorf(core.CodeOf(err), "list groups of queue %s: %w", path, err)
		}
		if g.Value.Started && g.Value.Spec.Status != core.StatusDeleted {
			out = append(out, g.Value)
		}
	}
	return q, out, nil
}

// UpdateGroup changes the fields that are named, or if none is those that are set. Running groups follow within
// seconds.
func (s *service) UpdateGroup(ctx context.Context, req *connect.Request[pb.UpdateGroupRequest]) (*connect.Response[pb.Group], error) {
	to, err := convert.GroupSpec(req.Msg.GetSpec(), s.now())
	if err != nil {
		return nil, err
	}
	f := fields(req.Msg.GetFields())
	if err := f.check("lock_timeout", "max_deliveries", "delay", "skip_older", "backoff", "exhausted", "expired", "breaker", "no_nack_throttle", "max_delayed_retries", "status"); err != nil {
		return nil, err
	}
	if to.Start.Mode != "" {
		return nil, core.Errorf(core.CodeBadArgument, "start is fixed at a group's creation; make another group to begin elsewhere")
	}
	if to.Delivery != "" {
		return nil, core.Errorf(core.CodeBadArgument, "delivery is fixed at a group's creation; make another group to deliver otherwise")
	}
	q, g, err := s.group(ctx, to.Queue, to.Name)
	if err != nil {
		return nil, err
	}
	ended, err := s.audit(ctx, req.Peer().Addr, auditedUpdate("update group", req.Msg.GetSpec(), req.Msg.GetFields()), auditedGroup(q, g.Spec.Name))
	if err != nil {
		return nil, err
	}
	now, err := metadata.Change(ctx, s.meta, metadata.Groups, metadata.GroupKey(q.ID, g.Spec.Name), func(now *metadata.GroupRecord) error {
		if now.ID != g.ID || now.Spec.Status == core.StatusDeleted {
			return core.Errorf(core.CodeNotFound, "group %s of queue %s does not exist", g.Spec.Name, q.Spec.Path)
		}
		asked := core.GroupSpec{Delivery: now.Spec.Delivery}
		change(f, "max_deliveries", &asked.MaxDeliveries, to.MaxDeliveries)
		change(f, "backoff", &asked.Backoff, to.Backoff)
		if err := asked.CheckChosen(); err != nil {
			return err
		}
		now.Spec = now.Spec.WithDefaults() // a row of before an option lacks it
		change(f, "lock_timeout", &now.Spec.LockTimeout, to.LockTimeout)
		change(f, "max_deliveries", &now.Spec.MaxDeliveries, to.MaxDeliveries)
		change(f, "delay", &now.Spec.Delay, to.Delay)
		change(f, "skip_older", &now.Spec.SkipOlder, to.SkipOlder)
		change(f, "backoff", &now.Spec.Backoff, to.Backoff)
		change(f, "exhausted", &now.Spec.Exhausted, to.Exhausted)
		change(f, "expired", &now.Spec.Expired, to.Expired)
		change(f, "breaker", &now.Spec.Breaker, to.Breaker)
		change(f, "no_nack_throttle", &now.Spec.NoNackThrottle, to.NoNackThrottle)
		change(f, "max_delayed_retries", &now.Spec.MaxDelayedRetries, to.MaxDelayedRetries)
		change(f, "status", &now.Spec.Status, to.Status)
		return now.Spec.Validate()
	})
	ended(ctx, err)
	if err != nil {
		return nil, err
	}
	s.tellOfQueue(ctx, q.ID)
	return connect.NewResponse(groupToProto(now)), nil
}

const (
	// tellWithin bounds one try of tellOfQueue.
	tellWithin = 500 * time.Millisecond
	// retellFor is for how long it is tried: a controller looks at each of its queues that often by itself.
	retellFor = 5 * time.Minute
)

// tellOfQueue has the controller that is responsible for a queue look at the queue and its groups now, or when it can
// be reached.
func (s *service) tellOfQueue(ctx context.Context, queue core.QueueID) {
	if !s.toldOfQueue(ctx, queue) {
		s.retell.Add(queue)
	}
}

// toldOfQueue is one try of tellOfQueue. All are told side by side: one that hangs holds up no other.
func (s *service) toldOfQueue(ctx context.Context, queue core.QueueID) bool {
	ctx, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	req := &pb.HearSharesRequest{Queue: queue.ID[:]} // the lists of output hosts are not waited for
	_, _, err := askAll(ctx, s.members.Hosts(roleController), roleController, req, func(addr string) rpc[pb.HearSharesRequest, pb.HearSharesResponse] {
		return s.peers.Controller(addr).HearShares
	})
	return err == nil
}

// DeleteGroup deletes a group, half made or not, with its dead letter queue. A group made under its name later is
// another one.
func (s *service) DeleteGroup(ctx context.Context, req *connect.Request[pb.DeleteGroupRequest]) (*connect.Response[pb.DeleteGroupResponse], error) {
	path, name := req.Msg.GetQueue(), req.Msg.GetName()
	if err := checkGroupNames(path, name); err != nil {
		return nil, err
	}
	_, q, err := s.resolve(ctx, path)
	if err != nil {
		return nil, err
	}
	g, _, err := metadata.Read[metadata.GroupRecord](ctx, s.meta, metadata.Groups, metadata.GroupKey(q.ID, name), metadata.Serial)
	missing := core.CodeOf(err) == core.CodeNotFound
	if err == nil {
		missing = g.Spec.Status == core.StatusDeleted // perhaps by an earlier call that did not come to its end
		err = s.deleteGroup(ctx, req.Peer().Addr, q, g)
	}
	switch code := core.CodeOf(err); {
	case err != nil && code != core.CodeNotFound:
		return nil, undeleted(err, fmt.Sprintf("delete group %s of queue %s", name, path))
	case missing || err != nil:
		return nil, core.Errorf(core.CodeNotFound, "group %s of queue %s does not exist", name, path)
	}
	return connect.NewResponse(&pb.DeleteGroupResponse{}), nil
}

// deleteGroup deletes a group and records it in the audit.
func (s *service) deleteGroup(ctx context.Context, who string, q metadata.QueueRecord, g metadata.GroupRecord) error {
	ended, err := s.audit(ctx, who, "delete group", auditedGroup(q, g.Spec.Name))
	if err != nil {
		return err
	}
	err = s.deletion().Group(ctx, g)
	ended(ctx, err)
	s.logDeletion(who, "delete group", auditedGroup(q, g.Spec.Name), err)
	return err
}

// auditedGroup is what the audit calls a group.
func auditedGroup(q metadata.QueueRecord, name string) string { return q.Spec.Path + "/" + name }

func checkGroupNames(path, name string) error {
	if _, err := core.ParseAnyQueuePath(path); err != nil {
		return err
	}
	_, err := core.ParseGroupName(name)
	return err
}

func groupToProto(g metadata.GroupRecord) *pb.Group {
	out := &pb.Group{Id: g.ID.String(), QueueId: g.Queue.String(), Spec: convert.GroupSpecToProto(g.Spec), Created: convert.Time(g.Created)}
	if g.Spec.Delivery == core.AtMostOnce {
		out.Spec.MaxDeliveries = 1 // whatever the row has
	}
	todo, unreached := "seek it", []core.HostID(nil)
	if g.Unreached != nil {
		unreached = *g.Unreached
	}
	if g.LastSeek != nil {
		out.LastSeek, out.LastSeekAt = g.LastSeek.To.String(), convert.Time(g.LastSeek.At)
		todo, unreached = "repeat the seek", g.LastSeek.Unreached
	}
	if len(unreached) > 0 {
		out.Note = fmt.Sprintf("controllers %v did not answer: if the network was cut, the group also gets messages that were published on their side meanwhile; %s when the network is whole", unreached, todo)
	}
	if g.Rewind != nil {
		out.PendingSeek, out.PendingSeekSince = g.Rewind.To.String(), convert.Time(g.Rewind.Began)
	}
	if !g.Spec.OnDLQ() {
		out.DlqPath = core.DLQPath(g.Spec.Queue, g.Spec.Name)
	}
	return out
}
