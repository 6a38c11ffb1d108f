package frontend

import (
	"context"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// CreateGroup makes a group and its dead letter queue, and has the controller fix where it starts. A second call with
// the same settings finishes what a first one left half made; CodeExists otherwise.
func (s *service) CreateGroup(ctx context.Context, req *connect.Request[pb.CreateGroupRequest]) (*connect.Response[pb.Group], error) {
	spec, err := s.newGroupSpec(req.Msg.GetSpec())
	if err != nil {
		return nil, err
	}
	_, q, err := s.resolve(ctx, spec.Queue)
	if err != nil {
		return nil, err
	}
	back := strings.HasPrefix(req.Msg.GetSpec().GetStart(), "-") // a duration back from now
	g, err := s.claimGroup(ctx, q, spec, back)
	if err != nil {
		return nil, err
	}
	if g, err = s.finishGroup(ctx, q, g); err != nil {
		return nil, core.Partly(err, fmt.Sprintf("group %s of queue %s is half made", spec.Name, spec.Queue), "create it again with the same settings")
	}
	return connect.NewResponse(groupToProto(g)), nil
}

func (s *service) newGroupSpec(p *pb.GroupSpec) (core.GroupSpec, error) {
	if p == nil {
		return core.GroupSpec{}, core.Errorf(core.CodeBadArgument, "spec is missing; its queue and name name the new group")
	}
	if err := checkGroupNames(p.Queue, p.Name); err != nil {
		return core.GroupSpec{}, err
	}
	if _, group, ok := core.SplitRetryPath(p.Queue); ok {
		return core.GroupSpec{}, core.Errorf(core.CodeBadName, "queue %s is the retry queue of group %s: no other group reads it", p.Queue, group)
	}
	spec, err := convert.GroupSpec(p, s.now())
	if err != nil {
		return spec, err
	}
	if err := spec.CheckChosen(); err != nil {
		return spec, err
	}
	spec = spec.WithDefaults()
	if now := s.now(); spec.Start.Mode == core.StartTime && spec.Start.At.After(now) { // where the group starts is fixed now
		return spec, core.Errorf(core.CodeBadArgument, "start %s is in the future, here it is %s; use latest, or an earlier time",
			spec.Start.At.UTC().Format(time.RFC3339Nano), now.UTC().Format(time.RFC3339))
	}
	return spec, spec.Validate()
}

// claimGroup makes the group's row, or takes over that of a deleted group or of a half-made one of the same settings.
// back says that the start was named as a duration.
func (s *service) claimGroup(ctx context.Context, q metadata.QueueRecord, spec core.GroupSpec, back bool) (metadata.GroupRecord, error) {
	now := s.now()
	g := metadata.GroupRecord{ID: core.GroupID{ID: core.NewID(now)}, Queue: q.ID, Spec: spec, Created: now.UTC()}
	if !spec.OnDLQ() {
		g.DLQ = core.QueueID{ID: core.NewID(now)}
	}
	key := metadata.GroupKey(q.ID, spec.Name)
	err := metadata.Create(ctx, s.meta, metadata.Groups, key, g)
	if core.CodeOf(err) != core.CodeExists {
		return g, err
	}
	return metadata.Change(ctx, s.meta, metadata.Groups, key, func(old *metadata.GroupRecord) error {
		switch {
		case old.Spec.Status == core.StatusDeleted:
			*old = g
			return nil
		case !old.Started && sameSettings(old.Spec, spec, back):
			return metadata.ErrNoChange
		case !old.Started:
			return core.Errorf(core.CodeExists, "group %s of queue %s is half made, with other settings (start %s); create it again with the same settings, or delete it: columba delete group %s %s",
				spec.Name, spec.Queue, old.Spec.Start, spec.Queue, spec.Name)
		}
		return core.Errorf(core.CodeExists, "group %s of queue %s exists", spec.Name, spec.Queue)
	})
}

// sameSettings leaves the instant of a start out when it was named as a duration back, which is another instant at each
// try.
func sameSettings(a, b core.GroupSpec, back bool) bool {
	if back || a.Start.At.Equal(b.Start.At) {
		a.Start.At = b.Start.At
	}
	return a == b
}

// finishGroup does what is missing between a group's row and a group that may be used. Every step may be done again.
// When the group, or its queue, was deleted meanwhile, it deletes what it made since: whoever deleted the group may
// have looked for that before it was there. CodeConflict then.
func (s *service) finishGroup(ctx context.Context, q metadata.QueueRecord, g metadata.GroupRecord) (metadata.GroupRecord, error) {
	failed := s.equipGroup(ctx, q, g)
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout) // also when the caller has gone
	defer stop()
	now, gone, err := s.deletedMeanwhile(ctx, q, g)
	switch {
	case gone:
		if err := s.deletion().Group(ctx, g); err != nil {
			return g, err
		}
		return g, core.Errorf(core.CodeConflict, "it was deleted meanwhile; create it again")
	case err == nil && now.Started: // perhaps by another call
		return now, nil
	case failed != nil:
		return g, failed
	case err != nil:
		return g, err
	}
	return g, core.Errorf(core.CodeUnavailable, "a controller started it, and its row does not say so; try again")
}

// undoTimeout bounds how long the creation of a group looks whether the group was deleted meanwhile, and deletes what
// it made.
const undoTimeout = 5 * time.Second

// equipGroup makes a group's dead letter queue and has a controller start the group.
func (s *service) equipGroup(ctx context.Context, q metadata.QueueRecord, g metadata.GroupRecord) error {
	if !g.Spec.OnDLQ() {
		dlq, err := s.claimDLQ(ctx, q, g)
		if err == nil {
			err = s.followCopies(ctx, q.ID, dlq)
		}
		if err != nil {
			return err
		}
	}
	return s.startGroup(ctx, g)
}

// deletedMeanwhile is a group's row as it is now, and whether the group is gone. A deletion of its queue may have
// listed the groups before this one was created.
func (s *service) deletedMeanwhile(ctx context.Context, q metadata.QueueRecord, g metadata.GroupRecord) (now metadata.GroupRecord, gone bool, err error) {
	_, queue, err := s.resolve(ctx, q.Spec.Path)
	if core.CodeOf(err) == core.CodeNotFound || err == nil && queue.ID != q.ID {
		return now, true, nil
	}
	if err != nil {
		return now, false, err
	}
	now, _, err = metadata.Read[metadata.GroupRecord](ctx, s.meta, metadata.Groups, metadata.GroupKey(q.ID, g.Spec.Name), metadata.Serial)
	return now, err == nil && (now.ID != g.ID || now.Spec.Status == core.StatusDeleted), err
}

// startGroup has a controller fix where the group starts in every extent of its queue. It may be done again.
func (s *service) startGroup(ctx context.Context, g metadata.GroupRecord) error {
	req := &pb.StartGroupRequest{Queue: g.Queue.ID[:], Name: g.Spec.Name, Group: g.ID.ID[:]}
	_, err := askForLong(ctx, s, s.ranked(roleController, g.Queue.ID), roleController, req, func(addr string) rpc[pb.StartGroupRequest, pb.StartGroupResponse] {
		return s.peers.Controller(addr).StartGroup
	})
	return err
}

// dlqRetention is how long dead letters are kept.
const dlqRetention = 14 * 24 * time.Hour

// claimDLQ makes the group's dead letter queue with its queue's durability. One that another group of that name left
// there goes, while the name is this group's: the other one was deleted before. Ids do not say which is the newer one,
// for they come from several clocks.
func (s *service) claimDLQ(ctx context.Context, q metadata.QueueRecord, g metadata.GroupRecord) (metadata.QueueRecord, error) {
	spec := core.QueueSpec{
		Path: core.DLQPath(q.Spec.Path, g.Spec.Name), Consistency: core.AP, Durability: q.Spec.Durability,
		Replicas: q.Spec.Replicas, MinReplicas: q.Spec.MinReplicas, MaxMessage: q.Spec.MaxMessage,
		ConsumedRetention: dlqRetention, UnconsumedRetention: dlqRetention, Status: core.StatusEnabled,
	}
	return s.claim(ctx, metadata.NameRecord{Queue: g.DLQ, Spec: spec, Owner: g.ID}, s.makeQueue, func(old metadata.QueueRecord) (bool, error) {
		if old.Owner == g.ID {
			return false, nil
		}
		now, _, err := metadata.Read[metadata.GroupRecord](ctx, s.meta, metadata.Groups, metadata.GroupKey(q.ID, g.Spec.Name), metadata.Serial)
		return now.ID == g.ID && now.Spec.Status != core.StatusDeleted, err
	})
}
