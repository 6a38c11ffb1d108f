package frontend

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/frontend/cancels"
	"github.com/columbamq/columba/frontend/lengths"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// stateDamaged is the state of an extent of which no row of the metadata can be decoded.
const stateDamaged = "damaged"

// ListExtents answers a page of a queue's extents, oldest first. The page token is an extent's id.
func (s *service) ListExtents(ctx context.Context, req *connect.Request[pb.ListExtentsRequest]) (*connect.Response[pb.ListExtentsResponse], error) {
	path, err := core.ParseAnyQueuePath(req.Msg.GetQueue())
	if err != nil {
		return nil, err
	}
	limit, err := pageLimit(req.Msg.GetLimit())
	if err != nil {
		return nil, err
	}
	after := req.Msg.GetAfter()
	if after != "" {
		if _, err := core.ParseID(after); err != nil {
			return nil, err
		}
	}
	q, err := s.queueToShow(ctx, path)
	if err != nil {
		return nil, err
	}
	records, more, err := metadata.ExtentRowsPage(ctx, s.shown, q.ID, after, limit, metadata.Quorum)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "list extents of queue %s: %w", path, err)
	}
	out := &pb.ListExtentsResponse{Extents: make([]*pb.ExtentInfo, len(records))}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for i, r := range records {
		if !r.Known() {
			out.Extents[i] = &pb.ExtentInfo{Extent: r.Key.Row, Queue: path, State: stateDamaged, Created: convert.Time(r.Value.ID.Time().UTC())}
			continue
		}
		g.Go(func() (err error) {
			out.Extents[i], err = s.extentInfo(gctx, r.Value, path)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if more {
		out.Next = records[len(records)-1].Key.Row
	}
	return connect.NewResponse(out), nil
}

// GetExtent looks an extent up by its id.
func (s *service) GetExtent(ctx context.Context, req *connect.Request[pb.GetExtentRequest]) (*connect.Response[pb.ExtentInfo], error) {
	id, err := core.ParseID(req.Msg.GetExtent())
	if err != nil {
		return nil, err
	}
	e, err := s.findExtent(ctx, core.ExtentID{ID: id})
	if err != nil {
		return nil, err
	}
	path, err := s.pathOf(ctx, e.Queue)
	if err != nil {
		return nil, err
	}
	return s.answerExtent(ctx, e, path)
}

// pathOf a queue, a deleted one too; its id when there is no record of it.
func (s *service) pathOf(ctx context.Context, id core.QueueID) (string, error) {
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, s.meta, metadata.Queues, metadata.QueueKey(id), metadata.One)
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
		return id.String(), nil
	case err != nil:
		return "", core.Errorf(core.CodeOf(err), "look up queue %s: %w", id, err)
	}
	return q.Spec.Path, nil
}

// SealExtent has the controller fix an extent's end.
func (s *service) SealExtent(ctx context.Context, req *connect.Request[pb.SealExtentAdminRequest]) (*connect.Response[pb.ExtentInfo], error) {
	if req.Msg.GetGiveUpQuarantined() && !req.Msg.GetForce() {
		return nil, core.Errorf(core.CodeBadArgument, "give_up_quarantined goes with force")
	}
	path, err := core.ParseAnyQueuePath(req.Msg.GetQueue())
	if err != nil {
		return nil, err
	}
	id, err := core.ParseID(req.Msg.GetExtent())
	if err != nil {
		return nil, err
	}
	_, q, err := s.resolve(ctx, path)
	if err != nil {
		return nil, err
	}
	e, err := s.findExtent(ctx, core.ExtentID{ID: id})
	switch {
	case err != nil:
		return nil, err
	case e.Queue != q.ID:
		return nil, core.Errorf(core.CodeNotFound, "extent %s is not one of queue %s", id, path)
	}
	seal := &pb.SealExtentRequest{
		Extent: convert.ExtentToProto(e), Reason: "operator", Force: req.Msg.GetForce(), GiveUpQuarantined: req.Msg.GetGiveUpQuarantined(), Who: req.Peer().Addr,
	}
	_, err = ask(ctx, s.ranked(roleController, q.ID.ID), roleController, seal, func(addr string) rpc[pb.SealExtentRequest, pb.SealExtentResponse] {
		return s.peers.Controller(addr).SealExtent
	})
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "seal extent %s: %w", id, err)
	}
	out, err := s.answerExtent(ctx, e, path)
	return out, core.Partly(err, fmt.Sprintf("extent %s is sealed, and its state cannot be read", id), "`columba show extent` shows it later")
}

// SealAllOfStore has the controller seal a page of the extents that wait for a store which an operator declares to be
// gone for good.
func (s *service) SealAllOfStore(ctx context.Context, req *connect.Request[pb.SealAllOfStoreRequest]) (*connect.Response[pb.SealAllOfStoreResponse], error) {
	if _, err := core.ParseHostID(req.Msg.GetStore()); err != nil {
		return nil, err
	}
	if req.Msg.GetAfter() != "" {
		if _, err := core.ParseID(req.Msg.GetAfter()); err != nil {
			return nil, err
		}
	}
	order := &pb.SealAllOfStoreRequest{Store: req.Msg.GetStore(), DryRun: req.Msg.GetDryRun(), After: req.Msg.GetAfter(), Who: req.Peer().Addr}
	out, err := ask(ctx, s.ranked(roleController, core.ID{}), roleController, order, func(addr string) rpc[pb.SealAllOfStoreRequest, pb.SealAllOfStoreResponse] {
		return s.peers.Controller(addr).SealAllOfStore
	})
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "seal the extents of store %s: %w", req.Msg.GetStore(), err)
	}
	paths := make(map[string]string)
	for _, e := range out.GetExtents() {
		if e.Queue, err = s.pathOfText(ctx, e.GetQueue(), paths); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(out), nil
}

// DeleteOrphans has the controllers remove extents on stores whose queues are not in the metadata. Of several, each
// knows some of them.
func (s *service) DeleteOrphans(ctx context.Context, req *connect.Request[pb.DeleteOrphansRequest]) (*connect.Response[pb.DeleteOrphansResponse], error) {
	order := &pb.DeleteOrphansRequest{DryRun: req.Msg.GetDryRun(), Who: req.Peer().Addr}
	parts, silent, err := askAll(ctx, s.members.Hosts(roleController), roleController, order, func(addr string) rpc[pb.DeleteOrphansRequest, pb.DeleteOrphansResponse] {
		return s.peers.Controller(addr).DeleteOrphans
	})
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "delete the extents of unknown queues: %w", err)
	}
	out := parts[0]
	for _, p := range parts[1:] {
		out.Count += p.GetCount()
		for _, e := range p.GetExtents() {
			if slices.ContainsFunc(out.Extents, func(x *pb.OrphanExtent) bool { return x.GetExtent() == e.GetExtent() }) {
				out.Count-- // it was handed over in between
			} else if len(out.Extents) < maxPage {
				out.Extents = append(out.Extents, e)
			}
		}
	}
	out.Silent = silent
	return connect.NewResponse(out), nil
}

// pathOfText is the path of a queue whose id is given as text; known are those that were looked up before.
func (s *service) pathOfText(ctx context.Context, id string, known map[string]string) (string, error) {
	if path, ok := known[id]; ok {
		return path, nil
	}
	queue, err := core.ParseID(id)
	if err != nil {
		return "", err
	}
	path, err := s.pathOf(ctx, core.QueueID{ID: queue})
	if err == nil {
		known[id] = path
	}
	return path, err
}

func (s *service) answerExtent(ctx context.Context, e core.Extent, path string) (*connect.Response[pb.ExtentInfo], error) {
	row, err := metadata.ReadExtentRow(ctx, s.meta, e.Queue, e.ID, metadata.One)
	r := row.Value
	switch {
	case core.CodeOf(err) == core.CodeNotFound || err == nil && !row.Known(): // its queue is being removed, or the row is damaged
		r.Extent = e
	case err != nil:
		return nil, core.Errorf(core.CodeOf(err), "look up extent %s: %w", e.ID, err)
	}
	info, err := s.extentInfo(ctx, r, path)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(info), nil
}

// findExtent finds the tuple of an extent whose queue is not known: in its seal row, or among the hints for
// controllers. One copy of the metadata may lack these rows, so a majority says whether the extent exists.
func (s *service) findExtent(ctx context.Context, id core.ExtentID) (core.Extent, error) {
	e, err := s.extentAt(ctx, id, metadata.One)
	if core.CodeOf(err) == core.CodeNotFound {
		e, err = s.extentAt(ctx, id, metadata.Quorum)
	}
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
		return core.Extent{}, core.Errorf(core.CodeNotFound, "extent %s does not exist", id)
	case err != nil:
		return core.Extent{}, core.Errorf(core.CodeOf(err), "look up extent %s: %w", id, err)
	}
	return e, nil
}

func (s *service) extentAt(ctx context.Context, id core.ExtentID, c metadata.Consistency) (core.Extent, error) {
	seal, _, err := metadata.Read[metadata.SealRecord](ctx, s.meta, metadata.Seals, metadata.SealKey(id), c)
	if err == nil {
		return seal.Extent, nil
	}
	for _, hint := range [...]metadata.Hint{metadata.HintLive, metadata.HintOpen} {
		if core.CodeOf(err) != core.CodeNotFound {
			break
		}
		var r metadata.ExtentRecord
		if r, _, err = metadata.Read[metadata.ExtentRecord](ctx, s.meta, metadata.Work, metadata.HintKey(hint, id), c); err == nil {
			return r.Extent, nil
		}
	}
	return core.Extent{}, err
}

// extentInfo is an extent as users see it. An extent without a seal row is open; one without an end is as long as a
// replica says.
func (s *service) extentInfo(ctx context.Context, e metadata.ExtentRecord, path string) (*pb.ExtentInfo, error) {
	info := &pb.ExtentInfo{
		Extent: e.ID.String(), Queue: path, Kind: string(e.Kind), State: string(core.ExtentOpen), Chain: e.Chain, Horizon: string(e.Horizon),
		Input: string(e.Input), Created: convert.Time(e.ID.Time().UTC()), ReadScope: "own", Wanted: int32(max(e.Wanted, len(e.Replicas))),
	}
	for _, r := range e.Replicas {
		info.Replicas = append(info.Replicas, string(r))
	}
	seal, _, err := metadata.Read[metadata.SealRecord](ctx, s.shown, metadata.Seals, metadata.SealKey(e.ID), metadata.Quorum)
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
	case err != nil:
		return nil, core.Errorf(core.CodeOf(err), "look up the end of extent %s: %w", e.ID, err)
	default:
		info.State = string(seal.State)
		info.ReadScope = seal.Home.String()
		for _, h := range seal.Holders {
			info.Copies = append(info.Copies, string(h))
		}
		if seal.State.HasEnd() {
			info.LastSeq, info.Bytes, info.Due, info.LostFrom = uint64(seal.L), seal.Bytes, convert.Time(seal.LastDue()), uint64(seal.LostFrom)
			return info, nil
		}
	}
	if r := s.replica(ctx, e.Extent); r != nil {
		info.LastSeq, info.Bytes = r.GetLast(), r.GetBytes()
	}
	return info, nil
}

// replica asks the extent's live stores in turn; nil when none answers.
func (s *service) replica(ctx context.Context, e core.Extent) *pb.Replica {
	req := &pb.GetReplicaRequest{Extent: e.ID.ID[:]}
	stores := storeCalls{s}
	for _, id := range e.Replicas {
		h, ok := stores.Find(id)
		if !ok {
			continue
		}
		if r, err := stores.Replica(ctx, h, lengths.FirstTimeout, req); err == nil {
			return r
		}
	}
	return nil
}

// gauge tells how far extents may be read.
func (s *service) gauge() lengths.Gauge { return lengths.Gauge{Meta: s.shown, Stores: storeCalls{s}} }

// storeCalls is what lengths are asked from.
type storeCalls struct{ *service }

func (s storeCalls) Find(id core.HostID) (membership.Host, bool) {
	h, ok := membership.Find(s.members, id)
	return h, ok && h.Has(roleStore)
}

func (s storeCalls) Replica(ctx context.Context, h membership.Host, timeout time.Duration, req *pb.GetReplicaRequest) (*pb.Replica, error) {
	return askOne(ctx, h, timeout, req, func(addr string) rpc[pb.GetReplicaRequest, pb.Replica] { return s.peers.Store(addr).GetReplica })
}

func (s storeCalls) Seek(ctx context.Context, h membership.Host, timeout time.Duration, req *pb.SeekRequest) (*pb.SeekResponse, error) {
	return askOne(ctx, h, timeout, req, func(addr string) rpc[pb.SeekRequest, pb.SeekResponse] { return s.peers.Store(addr).Seek })
}

// timersOf finds an extent that holds timers and is read, and the path of its queue, which is to be the one given, if
// any is, or the retry queue of one of its groups.
func (s *service) timersOf(ctx context.Context, path string, id core.ExtentID) (*lengths.Length, string, error) {
	e, err := s.findExtent(ctx, id)
	if err != nil {
		return nil, "", err
	}
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, s.meta, metadata.Queues, metadata.QueueKey(e.Queue), metadata.Serial)
	switch {
	case core.CodeOf(err) == core.CodeNotFound || err == nil && q.Spec.Status == core.StatusDeleted:
		return nil, "", core.Errorf(core.CodeNotFound, "the queue of extent %s was deleted", id)
	case err != nil:
		return nil, "", core.Errorf(core.CodeOf(err), "look up the queue of extent %s: %w", id, err)
	case path != "" && path != q.Spec.Path && path != queueOfRetries(q.Spec.Path):
		return nil, "", core.Errorf(core.CodeNotFound, "extent %s is not one of queue %s", id, path)
	case e.Kind != core.KindTimer:
		return nil, "", core.Errorf(core.CodeBadArgument, "extent %s has messages that were neither published for later nor moved to a retry queue, and only those can be cancelled: not one that waits up to 30 s after a nack, or for the group's delay", id)
	}
	l, err := s.gauge().Sealed(ctx, e)
	if err != nil {
		return nil, "", err
	}
	if l.Seal.State == core.ExtentRetiring || l.Seal.State == core.ExtentRetired || l.Seal.Home.Kind == core.HomePurged {
		return nil, "", core.Errorf(core.CodeNotFound, "the messages of extent %s are gone", id)
	}
	return l, q.Spec.Path, nil
}

// queueOfRetries is the queue whose messages a retry queue holds; of any other queue "".
func queueOfRetries(path string) string {
	queue, _, _ := core.SplitRetryPath(path)
	return queue
}

// timer reads a message that is to be cancelled. One that was acknowledged a moment ago may take a moment to be
// readable.
func (s *service) timer(ctx context.Context, path string, l *lengths.Length, at core.Receipt) (m cancels.Message, err error) {
	info := &pb.MessageInfo{Receipt: at.String(), Queue: path}
	for pause := settlePause; ; pause *= 2 {
		last, known := l.Last, l.Known
		if !known {
			last, known = s.gauge().Committed(ctx, l.Extent)
		}
		switch {
		case at.Seq > 0 && at.Seq <= last:
			if s.readMessage(ctx, at, info); info.Message == nil {
				return m, core.Errorf(core.CodeUnavailable, "message %s cannot be read: %s", at, info.Detail)
			}
			due := info.Message.GetDeliverAt().AsTime()
			if info.Message.DeliverAt == nil {
				due = info.Enqueued.AsTime()
			}
			return cancels.Message{Seq: at.Seq, Due: due, Enqueued: info.Enqueued.AsTime()}, nil
		case at.Seq == 0 || l.Known || known && pause > settleRetry/2 && s.gauge().Beyond(ctx, l.Extent, at.Seq):
			return m, core.Errorf(core.CodeNotFound, "message %s does not exist: extent %s goes up to %d", at, l.ID, last)
		case pause > settleRetry/2:
			return m, core.Errorf(core.CodeUnavailable, "it is not known whether message %s is committed; nothing was cancelled", at)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return m, core.Errorf(core.CodeUnavailable, "message %s cannot be read in time; nothing was cancelled", at)
		}
	}
}
