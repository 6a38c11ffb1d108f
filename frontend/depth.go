package frontend

import (
	"context"
	"sync"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// GetDepth counts what a group, or every group of a queue, has before it: the sum over the owners of its shares.
func (s *service) GetDepth(ctx context.Context, req *connect.Request[pb.GetDepthRequest]) (*connect.Response[pb.GetDepthResponse], error) {
	path, name := req.Msg.GetQueue(), req.Msg.GetGroup()
	var groups []metadata.GroupRecord
	var err error
	if name != "" {
		groups = make([]metadata.GroupRecord, 1)
		_, groups[0], err = s.group(ctx, path, name)
	} else {
		_, groups, err = s.groups(ctx, path)
	}
	if err != nil {
		return nil, err
	}
	out := &pb.GetDepthResponse{Groups: make([]*pb.Depth, len(groups))}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for i, group := range groups {
		g.Go(func() (err error) {
			out.Groups[i], err = s.depth(gctx, group)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// depth adds up what the owners of a group's shares say.
func (s *service) depth(ctx context.Context, group metadata.GroupRecord) (*pb.Depth, error) {
	hosts, err := s.owners(ctx, group)
	if err != nil {
		return nil, err
	}
	req := &pb.GetDepthRequest{Queue: group.Spec.Queue, Group: group.Spec.Name}
	var mu sync.Mutex
	sum := &pb.Depth{Queue: group.Spec.Queue, Group: group.Spec.Name}
	g, gctx := errgroup.WithContext(ctx)
	for _, h := range hosts {
		g.Go(func() error {
			resp, err := askOne(gctx, h, 0, req, func(addr string) rpc[pb.GetDepthRequest, pb.GetDepthResponse] { return s.peers.Output(addr).GetDepth })
			if err != nil {
				return core.Errorf(core.CodeOf(err), "depth of group %s of queue %s at %s: %w", group.Spec.Name, group.Spec.Queue, h.ID, err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, d := range resp.GetGroups() {
				addDepth(sum, d)
			}
			return nil
		})
	}
	return sum, g.Wait()
}

// addDepth adds one owner's part. The dead letters are not shared out: every owner counts all of them.
func addDepth(sum, part *pb.Depth) {
	sum.Ready += part.GetReady()
	sum.InFlight += part.GetInFlight()
	sum.Delayed += part.GetDelayed()
	sum.Parked += part.GetParked()
	sum.Blocked += part.GetBlocked()
	sum.Dead = max(sum.Dead, part.GetDead())
	sum.OldestReadyMs = max(sum.OldestReadyMs, part.GetOldestReadyMs())
}
