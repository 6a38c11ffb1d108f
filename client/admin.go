package client

import (
	"context"
	"iter"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// Admin manages queues and groups and looks into them. A change whose answer was lost fails with ErrUnknownOutcome.
// Safe for concurrent use. Iterators end after their first error. They read pages, each within the timeout of one call:
// the first page is asked for as any call, a later one again and again while no server can answer for now.
type Admin struct{ c *Client }

// QueueResult is the outcome of one of many.
type QueueResult struct {
	Queue Queue
	Err   error
}

// CreateQueue makes a queue; zero fields of spec take the cluster's defaults. ErrExists if the path is taken.
func (a *Admin) CreateQueue(ctx context.Context, spec core.QueueSpec) (Queue, error) {
	return queueOf(change(ctx, a.c, a.c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: convert.QueueSpecToProto(spec)}))
}

// CreateQueues makes several queues, at most 1,000. The results are in the order of specs.
func (a *Admin) CreateQueues(ctx context.Context, specs []core.QueueSpec) ([]QueueResult, error) {
	req := &pb.CreateQueuesRequest{}
	for _, s := range specs {
		req.Specs = append(req.Specs, convert.QueueSpecToProto(s))
	}
	res, err := change(ctx, a.c, a.c.admin.CreateQueues, req)
	if err != nil {
		return nil, err
	}
	if len(res.Results) != len(specs) {
		return nil, core.Errorf(core.CodeInternal, "server answered %d results for %d queues", len(res.Results), len(specs))
	}
	out := make([]QueueResult, len(specs))
	for i, r := range res.Results {
		if out[i].Err = convert.ErrorFromProto(r.Error); out[i].Err == nil {
			out[i].Queue, out[i].Err = queueOf(r.Queue, nil)
		}
	}
	return out, nil
}

// GetQueue looks a queue up by its path.
func (a *Admin) GetQueue(ctx context.Context, path string) (Queue, error) {
	return queueOf(read(ctx, a.c, a.c.admin.GetQueue, &pb.GetQueueRequest{Path: path}))
}

// ListQueues yields the queues whose path begins with prefix, in order of path.
func (a *Admin) ListQueues(ctx context.Context, prefix string) iter.Seq2[Queue, error] {
	return pages(ctx, a.c, func(ctx context.Context, after string) ([]*pb.Queue, string, error) {
		res, err := read(ctx, a.c, a.c.admin.ListQueues, &pb.ListQueuesRequest{Prefix: prefix, After: after})
		return res.GetQueues(), res.GetNext(), err
	}, func(p *pb.Queue) (Queue, error) { return queueOf(p, nil) })
}

// UpdateQueue changes the fields of spec that fields names (like "consumed_retention"), also back to zero. Without
// fields it changes those that are not zero. spec.Path names the queue.
func (a *Admin) UpdateQueue(ctx context.Context, spec core.QueueSpec, fields ...string) (Queue, error) {
	return queueOf(change(ctx, a.c, a.c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: convert.QueueSpecToProto(spec), Fields: fields}))
}

// DeleteQueue deletes a queue with its groups and messages.
func (a *Admin) DeleteQueue(ctx context.Context, path string) error {
	_, err := change(ctx, a.c, a.c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: path})
	return err
}

// CreateGroup makes a consumer group and its dead letter queue; zero fields take the defaults.
// ErrExists if the queue has a group of this name, ErrNotFound if there is no such queue.
func (a *Admin) CreateGroup(ctx context.Context, spec core.GroupSpec) (Group, error) {
	return groupOf(change(ctx, a.c, a.c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: convert.GroupSpecToProto(spec)}))
}

// GetGroup looks a group up by its queue's path and its name.
func (a *Admin) GetGroup(ctx context.Context, queue, name string) (Group, error) {
	return groupOf(read(ctx, a.c, a.c.admin.GetGroup, &pb.GetGroupRequest{Queue: queue, Name: name}))
}

// ListGroups returns the groups of a queue.
func (a *Admin) ListGroups(ctx context.Context, queue string) ([]Group, error) {
	res, err := read(ctx, a.c, a.c.admin.ListGroups, &pb.ListGroupsRequest{Queue: queue})
	if err != nil {
		return nil, err
	}
	return all(res.Groups, func(p *pb.Group) (Group, error) { return groupOf(p, nil) })
}

// UpdateGroup changes the fields of spec that fields names (like "skip_older"), also back to zero. Without fields it
// changes those that are not zero. spec.Queue and spec.Name name the group.
func (a *Admin) UpdateGroup(ctx context.Context, spec core.GroupSpec, fields ...string) (Group, error) {
	return groupOf(change(ctx, a.c, a.c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: convert.GroupSpecToProto(spec), Fields: fields}))
}

// DeleteGroup deletes a group with its dead letter queue and retry queue. The group gets no more messages; the queue
// and its other groups stay.
func (a *Admin) DeleteGroup(ctx context.Context, queue, name string) error {
	_, err := change(ctx, a.c, a.c.admin.DeleteGroup, &pb.DeleteGroupRequest{Queue: queue, Name: name})
	return err
}

// ListExtents yields the extents of a queue, oldest first.
func (a *Admin) ListExtents(ctx context.Context, queue string) iter.Seq2[ExtentInfo, error] {
	return pages(ctx, a.c, func(ctx context.Context, after string) ([]*pb.ExtentInfo, string, error) {
		res, err := read(ctx, a.c, a.c.admin.ListExtents, &pb.ListExtentsRequest{Queue: queue, After: after})
		return res.GetExtents(), res.GetNext(), err
	}, extentOf)
}

// GetExtent looks an extent up by its id.
func (a *Admin) GetExtent(ctx context.Context, extent string) (ExtentInfo, error) {
	res, err := read(ctx, a.c, a.c.admin.GetExtent, &pb.GetExtentRequest{Extent: extent})
	if err != nil {
		return ExtentInfo{}, err
	}
	return extentOf(res)
}

// SealOptions say what a seal may give up. The zero SealOptions gives nothing up.
type SealOptions struct {
	// Force ends an unsealed extent at the position that the answering replicas agree on, and has groups skip, for good,
	// the records of a sealed extent that no store has any more. Acknowledged messages may be lost.
	Force bool

	// GiveUpQuarantined also skips the records of a sealed extent that only quarantined replicas have. It needs Force.
	GiveUpQuarantined bool
}

// SealExtent fixes the last seq of an extent; the queue goes on in another one. The extent of a forced seal may be
// sealed already.
func (a *Admin) SealExtent(ctx context.Context, queue, extent string, o SealOptions) (ExtentInfo, error) {
	res, err := change(ctx, a.c, a.c.admin.SealExtent, &pb.SealExtentAdminRequest{
		Queue: queue, Extent: extent, Force: o.Force, GiveUpQuarantined: o.GiveUpQuarantined,
	})
	if err != nil {
		return ExtentInfo{}, err
	}
	return extentOf(res)
}

// ListHosts returns the hosts of the cluster, and those that left or failed within the last hour as far as the
// answering server saw it, sorted by host.
func (a *Admin) ListHosts(ctx context.Context) ([]HostInfo, error) {
	res, err := read(ctx, a.c, a.c.admin.ListHosts, &pb.ListHostsRequest{})
	if err != nil {
		return nil, err
	}
	return all(res.Hosts, hostOf)
}

// Depth counts the messages of a group in each state, or with group "" of each group of the queue.
func (a *Admin) Depth(ctx context.Context, queue, group string) ([]Depth, error) {
	res, err := read(ctx, a.c, a.c.admin.GetDepth, &pb.GetDepthRequest{Queue: queue, Group: group})
	if err != nil {
		return nil, err
	}
	return all(res.Groups, depthOf)
}

// DeadLetters yields the dead letters of a group, oldest first.
func (a *Admin) DeadLetters(ctx context.Context, queue, group string) iter.Seq2[DeadLetter, error] {
	return pages(ctx, a.c, func(ctx context.Context, after string) ([]*pb.DeadLetter, string, error) {
		res, err := read(ctx, a.c, a.c.admin.ListDeadLetters, &pb.ListDeadLettersRequest{Queue: queue, Group: group, After: after})
		return res.GetDeadLetters(), res.GetNext(), err
	}, deadLetterOf)
}

// GetDeadLetter returns one dead letter of a group by its message id; ErrNotFound if there is none.
func (a *Admin) GetDeadLetter(ctx context.Context, queue, group, id string) (DeadLetter, error) {
	found := pages(ctx, a.c, func(ctx context.Context, after string) ([]*pb.DeadLetter, string, error) { // each is a part of a large dead letter queue
		res, err := read(ctx, a.c, a.c.admin.ListDeadLetters, &pb.ListDeadLettersRequest{Queue: queue, Group: group, After: after, Id: id, Limit: 1})
		return res.GetDeadLetters(), res.GetNext(), err
	}, deadLetterOf)
	for d, err := range found {
		return d, err
	}
	return DeadLetter{}, core.Errorf(core.CodeNotFound, "message %s is not a dead letter of group %s of %s", id, group, queue)
}

// Delayed yields the delayed messages of a queue, without their bodies. With group "" they are the messages that were
// published for later: one extent after another, within an extent by due time. With a group they are also the messages
// that its consumers nacked, and those that an output host has read and the group's delay holds back.
func (a *Admin) Delayed(ctx context.Context, queue, group string) iter.Seq2[DelayedMessage, error] {
	return pages(ctx, a.c, func(ctx context.Context, after string) ([]*pb.DelayedMessage, string, error) {
		res, err := read(ctx, a.c, a.c.admin.ListDelayed, &pb.ListDelayedRequest{Queue: queue, Group: group, After: after})
		return res.GetMessages(), res.GetNext(), err
	}, delayedOf)
}

// Peek yields the stored messages of a queue, oldest first, without consuming them.
func (a *Admin) Peek(ctx context.Context, queue string) iter.Seq2[StoredMessage, error] {
	return pages(ctx, a.c, func(ctx context.Context, after string) ([]*pb.StoredMessage, string, error) {
		res, err := read(ctx, a.c, a.c.admin.Peek, &pb.PeekRequest{Queue: queue, After: after})
		return res.GetMessages(), res.GetNext(), err
	}, storedOf)
}
