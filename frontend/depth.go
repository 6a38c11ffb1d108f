package frontend

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// GetDepth counts what a group, or every group of a queue, has before it: the sum over the owners of its shares, and what lies in those
// that nobody owns just now.
func (s *service) GetDepth(ctx context.Context, req *connect.Request[pb.GetDepthRequest]) (*connect.Response[pb.GetDepthResponse], error) {
	path, name := req.Msg.GetQueue(), req.Msg.GetGroup()
	var q metadata.QueueRecord
	var groups []metadata.GroupRecord
	var err error
	if name != "" {
		groups = make([]metadata.GroupRecord, 1)
		q, groups[0], err = s.group(ctx, path, name)
	} else {
		q, groups, err = s.groups(ctx, path)
	}
	if err != nil {
		return nil, err
	}
	extents, err := s.lengths(ctx, q.ID, core.GroupID{})
	if err != nil {
		return nil, err
	}
	published := s.publishRate(ctx, extents)
	out := &pb.GetDepthResponse{Groups: make([]*pb.Depth, len(groups))}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for i, group := range groups {
		g.Go(func() error {
			d, err := s.depth(gctx, group, extents)
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
	left := d.GetReady() + d.GetInFlight() + d.GetDelayed() + d.GetParked()
	if left == 0 {
		return 0
	}
	net := d.GetAckRate() - d.GetPublishRate()
	if net*longestDrain.Seconds() < float64(left) {
		return -1
	}
	return int64(float64(left) / net * 1000)
}

// depth adds up what the owners of a group's shares say, what is in shares without one, and the dead letters.
func (s *service) depth(ctx context.Context, group metadata.GroupRecord, extents []*length) (*pb.Depth, error) {
	w, err := s.workAndParked(ctx, group, extents)
	if err != nil {
		return nil, err
	}
	sum := &pb.Depth{Queue: group.Spec.Queue, Group: group.Spec.Name}
	req := &pb.GetDepthRequest{Queue: group.Spec.Queue, Group: group.Spec.Name}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for _, o := range w.owners {
		g.Go(func() error {
			resp, err := askOne(gctx, o.Host, 0, req, func(addr string) rpc[pb.GetDepthRequest, pb.GetDepthResponse] { return s.peers.Output(addr).GetDepth })
			if err != nil {
				return core.Errorf(core.CodeOf(err), "depth of group %s of queue %s at %s: %w", group.Spec.Name, group.Spec.Queue, o.ID, err)
			}
			mu.Lock()
			defer mu.Unlock()
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
	g.Go(func() error {
		letters, err := s.lengths(gctx, group.DLQ, core.GroupID{})
		mu.Lock()
		defer mu.Unlock()
		for _, l := range letters {
			if sum.Dead += uint64(l.last) - min(l.seal.RemovedCount, uint64(l.last)); !l.known {
				sum.UnknownExtents++
			}
		}
		return err
	})
	return sum, g.Wait()
}

// addDepth adds one owner's part.
func addDepth(sum, part *pb.Depth) {
	sum.Ready += part.GetReady()
	sum.InFlight += part.GetInFlight()
	sum.Delayed += part.GetDelayed()
	sum.Parked += part.GetParked()
	sum.Blocked += part.GetBlocked()
	sum.OldestReadyMs = max(sum.OldestReadyMs, part.GetOldestReadyMs())
	sum.StalledMs = max(sum.StalledMs, part.GetStalledMs())
	sum.AckRate += part.GetAckRate()
	sum.UnknownExtents += part.GetUnknownExtents()
	sum.Extents += part.GetExtents()
}

// work is who has what of a group.
type work struct {
	owners []ownership // the live output hosts with shares of it; the one that would get the first when none has
	alone  []*length   // extents that it has not consumed and that have no live owner
}

type ownership struct {
	membership.Host
	shares int
	oldest *length // of the extents of its shares; nil: it has none
}

// work looks up who owns the shares of a group.
func (s *service) work(ctx context.Context, group metadata.GroupRecord, extents []*length) (work, error) {
	done, err := s.consumed(ctx, group)
	if err != nil {
		return work{}, err
	}
	owner, err := s.assigned(ctx, group.ID)
	if err != nil {
		return work{}, err
	}
	var w work
	shares := make(map[core.HostID][]*length)
	live := s.ranked(roleOutput, group.ID.ID)
	for _, l := range extents {
		if done[l.ID] {
			continue
		}
		host := owner[l.ID]
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

// consumed are the extents that a group has consumed to their end.
func (s *service) consumed(ctx context.Context, group metadata.GroupRecord) (map[core.ExtentID]bool, error) {
	out := make(map[core.ExtentID]bool)
	for d, err := range metadata.All[metadata.DoneRecord](ctx, s.meta, metadata.Dones, group.ID.String(), metadata.One) {
		if err != nil {
			return nil, core.Errorf(core.CodeOf(err), "look up what group %s has consumed: %w", group.Spec.Name, err)
		}
		if id, err := core.ParseID(d.Key.Row); err == nil && d.Value.Epoch == group.Epoch {
			out[core.ExtentID{ID: id}] = true
		}
	}
	return out, nil
}

// unowned is the depth of a share that nobody owns just now, by the checkpoints of its owners.
func (s *service) unowned(ctx context.Context, group metadata.GroupRecord, l *length) (*pb.Depth, error) {
	state, err := s.saved(ctx, group, l.ID)
	if err != nil {
		return nil, err
	}
	gone, err := l.seal.Gone()
	if err != nil {
		return nil, err
	}
	state.Merge(dispatch.StateDone(gone))
	d := state.Depth(l.last, s.now())
	out := &pb.Depth{Ready: uint64(d.Ready), InFlight: uint64(d.InFlight), Delayed: uint64(d.Delayed + d.Dying), Parked: uint64(d.Parked), Extents: 1}
	switch {
	case l.Kind != core.KindTimer:
	case l.Queue == group.Retry:
		out.Parked, out.Ready = out.Parked+out.Ready, 0
	case !l.seal.State.HasEnd() || l.seal.LastDue().After(s.now()): // an owner would ask how many of them are due
		out.Ready, out.Delayed = 0, out.Delayed+out.Ready
	}
	if !l.known {
		out.UnknownExtents = 1
	}
	return out, nil
}

// saved is what the owners of a share have saved in the group's present epoch.
func (s *service) saved(ctx context.Context, group metadata.GroupRecord, extent core.ExtentID) (state dispatch.State, err error) {
	const page = 100
	partition := metadata.CheckpointPartition(group.ID, extent)
	for after, more := "", true; more; {
		var rows []metadata.Row
		if rows, more, err = s.meta.List(ctx, metadata.Checkpoints, partition, after, page, metadata.One); err != nil {
			return state, core.Errorf(core.CodeOf(err), "look up how far group %s is in extent %s: %w", group.Spec.Name, extent, err)
		}
		for _, row := range rows {
			after = row.Key.Row
			text, _, _ := strings.Cut(row.Key.Row, "/")
			if epoch, err := strconv.ParseUint(text, 10, 64); err != nil || epoch != group.Epoch {
				continue
			}
			one, err := dispatch.DecodeState(row.Value)
			if err != nil {
				return state, err
			}
			state.Merge(one)
		}
		more = more && len(rows) > 0
	}
	return state, nil
}

// length is how far an extent may be read.
type length struct {
	core.Extent
	seal  metadata.SealRecord // of no state while nobody seals it
	last  core.Seq            // its end, or what is committed
	known bool                // false: no store could tell
}

// readers are the stores that an extent may be read from.
func (l *length) readers() []core.HostID {
	if l.seal.State.HasEnd() {
		return l.seal.Holders
	}
	return l.Replicas
}

// sealsAtOnce bounds one look-up of seal rows.
const sealsAtOnce = 500

// lengths are those of a queue's extents that a group reads, the zero one stands for its own, oldest first: of sealed ones by the metadata, of the others by
// a store.
func (s *service) lengths(ctx context.Context, queue core.QueueID, group core.GroupID) ([]*length, error) {
	var all []*length
	for r, err := range metadata.All[metadata.ExtentRecord](ctx, s.meta, metadata.Extents, queue.String(), metadata.One) {
		if err != nil {
			return nil, core.Errorf(core.CodeOf(err), "list the extents of queue %s: %w", queue, err)
		}
		all = append(all, &length{Extent: r.Value.Extent})
	}
	for some := range slices.Chunk(all, sealsAtOnce) {
		if err := s.readSeals(ctx, some); err != nil {
			return nil, err
		}
	}
	all = slices.DeleteFunc(all, func(l *length) bool { return l.seal.State == core.ExtentRetired || !l.seal.Home.ReadBy(group) })
	var calls errgroup.Group
	calls.SetLimit(fanOut)
	for _, l := range all {
		if l.known {
			continue
		}
		calls.Go(func() error {
			l.last, l.known = s.committed(ctx, l.Extent)
			return nil
		})
	}
	calls.Wait() // no function fails
	return all, nil
}

// readSeals fills in what the metadata have of the ends of extents.
func (s *service) readSeals(ctx context.Context, all []*length) error {
	keys := make([]metadata.Key, len(all))
	byKey := make(map[metadata.Key]*length, len(all))
	for i, l := range all {
		keys[i] = metadata.SealKey(l.ID)
		byKey[keys[i]] = l
	}
	rows, err := metadata.GetRows(ctx, s.meta, metadata.Seals, keys, metadata.One)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "look up the ends of %d extents: %w", len(keys), err)
	}
	for _, row := range rows {
		l := byKey[row.Key]
		if l.seal, err = metadata.Decode[metadata.SealRecord](metadata.Seals, row); err != nil {
			return err
		}
		if l.seal.State.HasEnd() {
			l.last, l.known = l.seal.L, true
		}
	}
	return nil
}

// committed is how far an extent without an end may be read, by the first of its stores that tells. One that is on none of them holds nothing.
func (s *service) committed(ctx context.Context, e core.Extent) (last core.Seq, known bool) {
	req := &pb.GetReplicaRequest{Extent: e.ID.ID[:]}
	for h, timeout := range s.storesOf(e.Replicas) {
		r, err := askOne(ctx, h, timeout, req, func(addr string) rpc[pb.GetReplicaRequest, pb.Replica] { return s.peers.Store(addr).GetReplica })
		switch {
		case err == nil && !r.GetDamaged():
			return core.Seq(min(r.GetCommitted(), r.GetLast())), true
		case core.CodeOf(err) == core.CodeNotFound:
			known = true
		}
	}
	return 0, known
}

// lastTimeout bounds the question to the last store that there is to ask.
const lastTimeout = 3 * time.Second

// storesOf are those of the stores that are there, and how long to wait for the answer of each.
func (s *service) storesOf(ids []core.HostID) iter.Seq2[membership.Host, time.Duration] {
	var there []membership.Host
	for _, id := range ids {
		if h, ok := membership.Find(s.members, id); ok && h.Has(roleStore) {
			there = append(there, h)
		}
	}
	return func(yield func(membership.Host, time.Duration) bool) {
		for i, h := range there {
			timeout := replicaTimeout
			if i == len(there)-1 {
				timeout = lastTimeout
			}
			if !yield(h, timeout) {
				return
			}
		}
	}
}

// publishWindow is what a publish rate is about.
const publishWindow = 10 * time.Second

// publishRate is how many messages per second were stored lately in extents, by the times of their batches.
func (s *service) publishRate(ctx context.Context, all []*length) float64 {
	now := s.now()
	from := now.Add(-publishWindow)
	counts := make([]core.Seq, len(all))
	var calls errgroup.Group
	calls.SetLimit(fanOut)
	for i, l := range all {
		if l.seal.State.HasEnd() && l.seal.Ended.Before(from) || l.last == 0 {
			continue
		}
		calls.Go(func() error {
			counts[i] = s.storedSince(ctx, l, from)
			return nil
		})
	}
	calls.Wait() // no function fails
	sum := core.Seq(0)
	for _, n := range counts {
		sum += n
	}
	return float64(sum) / publishWindow.Seconds()
}

// storedSince counts the messages of an extent from t on; none when no store can tell.
func (s *service) storedSince(ctx context.Context, l *length, t time.Time) core.Seq {
	req := &pb.SeekRequest{Extent: l.ID.ID[:], Time: timestamppb.New(t)}
	for h, timeout := range s.storesOf(l.readers()) {
		r, err := askOne(ctx, h, timeout, req, func(addr string) rpc[pb.SeekRequest, pb.SeekResponse] { return s.peers.Store(addr).Seek })
		if first := core.Seq(r.GetSeq()); err == nil && first > 0 {
			return l.last + 1 - min(first, l.last+1)
		}
	}
	return 0
}
