package frontend

import (
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/frontend/lengths"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// GetDepth counts what a group, or every group of a queue, has before it: the sum over the owners of its shares, and
// what lies in those that nobody owns just now.
func (s *service) GetDepth(ctx context.Context, req *connect.Request[pb.GetDepthRequest]) (*connect.Response[pb.GetDepthResponse], error) {
	path, name := req.Msg.GetQueue(), req.Msg.GetGroup()
	var q metadata.QueueRecord
	var groups []metadata.GroupRecord
	var err error
	if name != "" {
		groups = make([]metadata.GroupRecord, 1)
		q, groups[0], err = s.groupToShow(ctx, path, name)
	} else {
		q, groups, err = s.groups(ctx, path)
	}
	if err != nil {
		return nil, err
	}
	extents, err := s.gauge().OfQueue(ctx, q.ID, core.GroupID{})
	if err != nil {
		return nil, err
	}
	published := s.gauge().Rate(ctx, extents, s.now())
	out := &pb.GetDepthResponse{Groups: make([]*pb.Depth, len(groups))}
	var owners depthOwners
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for i, group := range groups {
		g.Go(func() error {
			d, err := s.depth(gctx, group, extents, &owners)
			if err != nil {
				return err
			}
			d.PublishRate = published
			d.DrainMs = drain(d)
			out.Groups[i] = d
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// longestDrain is the longest estimate that is worth telling.
const longestDrain = 365 * 24 * time.Hour

// drain is in how many milliseconds nothing will be left at the rates of a depth; -1: at these it will not get less.
func drain(d *pb.Depth) int64 {
	left := d.GetReady() + d.GetInFlight() + d.GetDelayed()
	if left == 0 {
		return 0
	}
	net := d.GetAckRate() - d.GetPublishRate()
	if net*longestDrain.Seconds() < float64(left) {
		return -1
	}
	return int64(float64(left) / net * 1000)
}

// depth adds up what the owners of a group's shares say, what is in shares without one, and the dead letters. The
// shares of an owner that does not answer count as unknown.
func (s *service) depth(ctx context.Context, group metadata.GroupRecord, extents []*lengths.Length, owners *depthOwners) (*pb.Depth, error) {
	w, merged, err := s.allWork(ctx, group, extents)
	if err != nil {
		return nil, err
	}
	s.gauge().Measure(ctx, w.alone)
	sum := &pb.Depth{Queue: group.Spec.Queue, Group: group.Spec.Name, UnknownExtents: s.longSealing(extents)}
	req := &pb.GetDepthRequest{Queue: group.Spec.Queue, Group: group.Spec.Name}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for _, o := range w.owners {
		g.Go(func() error {
			resp, err := owners.ask(gctx, o.Host, req, func(addr string) rpc[pb.GetDepthRequest, pb.GetDepthResponse] { return s.peers.Output(addr).GetDepth })
			mu.Lock()
			defer mu.Unlock()
			switch code := core.CodeOf(err); {
			case err == nil:
			case gctx.Err() == nil && (code == core.CodeUnavailable || code == core.CodeDeadline):
				s.log.Debug("an output host does not tell the depth of its shares", "queue", group.Spec.Queue, "group", group.Spec.Name, "host", o.ID, "err", err)
				sum.UnknownExtents += uint32(o.shares)
				return nil
			default:
				return core.Errorf(code, "depth of group %s of queue %s at %s: %w", group.Spec.Name, group.Spec.Queue, o.ID, err)
			}
			for _, d := range resp.GetGroups() {
				if missing := uint32(o.shares); missing > d.GetExtents() { // it has yet to resume them
					sum.UnknownExtents += missing - d.GetExtents()
				}
				addDepth(sum, d)
			}
			return nil
		})
	}
	for _, l := range w.alone {
		g.Go(func() error {
			d, err := s.unowned(gctx, group, l)
			mu.Lock()
			defer mu.Unlock()
			addDepth(sum, d)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return sum, err
	}
	// The owners have answered: a message that dies meanwhile counts here, maybe also as theirs. So does an extent that is
	// merged meanwhile.
	letters, err := s.gauge().OfQueue(ctx, group.DLQ, group.ID)
	if err != nil {
		return sum, err
	}
	for _, l := range letters {
		if _, counted := slices.BinarySearchFunc(merged, l, byAge); counted {
			continue
		}
		if sum.Dead += uint64(l.Last) - min(l.Seal.RemovedCount, uint64(l.Last)); !l.Known {
			sum.UnknownExtents++
		}
	}
	return sum, nil
}

// depthTimeout bounds one owner's answer.
const depthTimeout = 10 * time.Second

// depthOwners asks the owners of shares for one call. One that did not answer in time is not asked for further groups:
// a queue with many groups would wait for it again and again.
type depthOwners struct {
	silent sync.Map // of core.HostID
}

// ask has half of the time that ctx has left at most, so that there is time for the other parts of a depth.
func (a *depthOwners) ask(ctx context.Context, h membership.Host, req *pb.GetDepthRequest, at func(addr string) rpc[pb.GetDepthRequest, pb.GetDepthResponse]) (*pb.GetDepthResponse, error) {
	if _, silent := a.silent.Load(h.ID); silent {
		return nil, core.Errorf(core.CodeDeadline, "output host %s did not answer about another group", h.ID)
	}
	timeout := depthTimeout
	if until, ok := ctx.Deadline(); ok {
		timeout = max(min(timeout, time.Until(until)/2), time.Millisecond)
	}
	resp, err := askOne(ctx, h, timeout, req, at)
	if core.CodeOf(err) == core.CodeDeadline {
		a.silent.Store(h.ID, nil)
	}
	return resp, err
}

// slowSeal is for how long an extent may be sealing before its messages count as unknown. Until it has an end, only
// those that are known to be committed are counted.
const slowSeal = 10 * time.Second

// longSealing is how many extents have been sealing for long.
func (s *service) longSealing(extents []*lengths.Length) (n uint32) {
	for _, l := range extents {
		if l.Seal.State == core.ExtentSealing && s.now().Sub(l.Seal.Changed) > slowSeal {
			n++
		}
	}
	return n
}

// addDepth adds one owner's part.
func addDepth(sum, part *pb.Depth) {
	sum.Ready += part.GetReady()
	sum.InFlight += part.GetInFlight()
	sum.Delayed += part.GetDelayed()
	sum.DelayedPublish += part.GetDelayedPublish()
	sum.DelayedRetry += part.GetDelayedRetry()
	sum.DelayedGroup += part.GetDelayedGroup()
	sum.Blocked += part.GetBlocked()
	sum.Retries += part.GetRetries()
	sum.OldestReadyMs = max(sum.OldestReadyMs, part.GetOldestReadyMs())
	sum.BreakerOpenMs = max(sum.BreakerOpenMs, part.GetBreakerOpenMs())
	sum.AckRate += part.GetAckRate()
	sum.UnknownExtents += part.GetUnknownExtents()
	sum.Extents += part.GetExtents()
}

// work is who has what of a group.
type work struct {
	owners []ownership       // the live output hosts with shares of it; the one that would get the first when none has
	alone  []*lengths.Length // extents that it has not consumed and that have no live owner
}

type ownership struct {
	membership.Host
	shares int
	oldest *lengths.Length // of the extents of its shares; nil: it has none
}

// work looks up who of the assigned owners has shares of a group in these extents, oldest first.
func (s *service) work(ctx context.Context, group metadata.GroupRecord, assigned map[core.ExtentID]metadata.AssignmentRecord, extents []*lengths.Length) (work, error) {
	done, err := s.consumed(ctx, group)
	if err != nil {
		return work{}, err
	}
	var w work
	shares := make(map[core.HostID][]*lengths.Length)
	live := s.ranked(roleOutput, group.ID.ID)
	for _, l := range extents {
		if _, consumed := done[l.ID]; consumed {
			continue
		}
		host := assigned[l.ID].Owner
		if !slices.ContainsFunc(live, func(h membership.Host) bool { return h.ID == host }) {
			w.alone = append(w.alone, l)
			continue
		}
		shares[host] = append(shares[host], l)
	}
	for _, h := range live {
		if mine := shares[h.ID]; len(mine) > 0 {
			w.owners = append(w.owners, ownership{h, len(mine), mine[0]})
		}
	}
	if len(w.owners) == 0 && len(live) > 0 {
		w.owners = []ownership{{Host: live[0]}}
	}
	return w, nil
}

// allWork is work, with that in the group's retry queue, and in the extents of dead letters that were merged into it.
// It asks no store: see Measure. merged are the extents of dead letters, oldest first.
func (s *service) allWork(ctx context.Context, group metadata.GroupRecord, extents []*lengths.Length) (w work, merged []*lengths.Length, err error) {
	var retries []*lengths.Length
	if !group.Retry.IsZero() { // a message came into it
		if retries, err = s.gauge().Ends(ctx, group.Retry, group.ID); err != nil {
			return w, nil, err
		}
	}
	assigned, err := s.assigned(ctx, group.ID)
	if err != nil {
		return w, nil, err
	}
	if merged, err = s.merged(ctx, group, assigned); err != nil {
		return w, nil, err
	}
	all := slices.Concat(extents, retries, merged)
	slices.SortFunc(all, byAge)
	w, err = s.work(ctx, group, assigned, all)
	return w, merged, err
}

// merged are the extents of dead letters that were merged into a group. Most groups have none, and a dead letter queue
// may have thousands of extents. So their seals are read only if the group has a share of one, or if there was an
// operation: its row stays for a week after its end, so that an owner is assigned before.
func (s *service) merged(ctx context.Context, group metadata.GroupRecord, assigned map[core.ExtentID]metadata.AssignmentRecord) ([]*lengths.Length, error) {
	shares := false
	for _, a := range assigned {
		shares = shares || a.Extent.Queue == group.DLQ
	}
	if !shares {
		_, _, err := metadata.Read[metadata.OperationRecord](ctx, s.shown, metadata.Operations, metadata.OperationKey(group.DLQ.ID), metadata.Quorum)
		if core.CodeOf(err) == core.CodeNotFound {
			return nil, nil
		}
	}
	letters, err := s.gauge().Ends(ctx, group.DLQ, group.ID)
	return slices.DeleteFunc(letters, func(l *lengths.Length) bool { return l.Seal.Home.Kind != core.HomeMerged }), err
}

func byAge(a, b *lengths.Length) int { return compareExtents(a.ID, b.ID) }

// consumed are the extents that a group has consumed to their end.
func (s *service) consumed(ctx context.Context, group metadata.GroupRecord) (map[core.ExtentID]time.Time, error) {
	out, err := metadata.Consumed(ctx, s.shown, group.ID, group.Epoch, metadata.Quorum)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "look up what group %s has consumed: %w", group.Spec.Name, err)
	}
	return out, nil
}

// unowned is the depth of a share that nobody owns just now, by the checkpoints of its owners.
func (s *service) unowned(ctx context.Context, group metadata.GroupRecord, l *lengths.Length) (*pb.Depth, error) {
	state, err := s.saved(ctx, group, l.Extent)
	if err != nil {
		return nil, err
	}
	gone, err := l.Seal.Gone()
	if err != nil {
		return nil, err
	}
	state.Merge(dispatch.StateDone(gone))
	d := state.Depth(l.Last, s.now())
	out, delayed := &pb.Depth{Ready: uint64(d.Ready), InFlight: uint64(d.InFlight), Extents: 1}, backlog.DelayedIn(d)
	switch {
	case l.Kind != core.KindTimer:
		if delay := group.Spec.Delay; delay > 0 && l.Queue == group.Queue && out.Ready > 0 {
			young := l.Readable() + 1 - s.gauge().Since(ctx, l, s.now().Add(-delay))
			kept := min(state.Unbegun(young, l.Readable()), out.Ready)
			out.Ready, delayed.Group = out.Ready-kept, delayed.Group+kept
		}
	case l.Seal.State.HasEnd() && !l.Seal.LastDue().After(s.now()): // all of them are due
	case l.Queue == group.Retry:
		out.Ready, delayed.Retry = 0, delayed.Retry+out.Ready
	default: // an owner would ask how many of them are due
		out.Ready, delayed.Publish = 0, delayed.Publish+out.Ready
	}
	out.Delayed, out.DelayedPublish, out.DelayedRetry, out.DelayedGroup = delayed.Sum(), delayed.Publish, delayed.Retry, delayed.Group
	if out.Retries = uint64(d.Retries); l.Queue == group.Retry {
		out.Retries = out.Ready + out.InFlight + out.Delayed
	}
	if out.Ready > 0 { // the oldest of them is no older than its extent
		out.OldestReadyMs = max(1, s.now().Sub(l.ID.Time()).Milliseconds())
	}
	if !l.Known {
		out.UnknownExtents = 1
	}
	return out, nil
}

// saved is what the owners of a share have saved in the group's present epoch, or where a rewind changes nothing in
// any.
func (s *service) saved(ctx context.Context, group metadata.GroupRecord, e core.Extent) (state dispatch.State, err error) {
	var rows []dispatch.Saved
	for row, err := range metadata.Rows(ctx, s.shown, metadata.Checkpoints, metadata.CheckpointPartition(group.ID, e.ID), metadata.Quorum) {
		if err != nil {
			return state, core.Errorf(core.CodeOf(err), "look up how far group %s is in extent %s: %w", group.Spec.Name, e.ID, err)
		}
		epoch, run, ok := metadata.CheckpointOf(row.Key)
		if !ok || epoch != group.Epoch && e.Queue == group.Queue {
			continue
		}
		one, err := dispatch.DecodeState(row.Value)
		if err != nil {
			return state, err
		}
		rows = append(rows, dispatch.Saved{Version: dispatch.Version{Run: run, Written: row.Written.UnixMicro()}, State: one})
	}
	return dispatch.MergeSaved(rows), nil
}
