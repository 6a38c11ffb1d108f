package storehost

import (
	"context"
	"math"
	"slices"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
)

var _ columbav1connect.StoreServiceHandler = (*service)(nil)

// service is the edge between Connect and the role.
type service struct{ h *Host }

// answer dresses a call's outcome.
func answer[T any](msg *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(msg), nil
}

func extentID(b []byte) (core.ExtentID, error) {
	id, err := core.IDFromBytes(b)
	return core.ExtentID{ID: id}, err
}

func (s *service) Fence(_ context.Context, req *connect.Request[pb.FenceRequest]) (*connect.Response[pb.FenceResponse], error) {
	extent, err := convert.Extent(req.Msg.Extent)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	expected, err := convert.Identity(req.Msg.Expected)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	a, err := s.h.fence(extent, expected, req.Msg.Version)
	return answer(convert.FenceAnswerToProto(a), err)
}

func (s *service) Seal(ctx context.Context, req *connect.Request[pb.SealReplicaRequest]) (*connect.Response[pb.SealReplicaResponse], error) {
	extent, err := convert.Extent(req.Msg.Extent)
	if err == nil {
		err = s.h.checkIdentity(req.Msg.Expected)
	}
	if err == nil {
		err = s.h.seal(ctx, extent, core.Seq(req.Msg.L), req.Msg.Checksum, req.Msg.Version)
	}
	return answer(&pb.SealReplicaResponse{}, err)
}

func (s *service) ReadRange(_ context.Context, req *connect.Request[pb.ReadRangeRequest]) (*connect.Response[pb.ReadRangeResponse], error) {
	id, err := extentID(req.Msg.Extent)
	if err == nil {
		err = s.h.checkIdentity(req.Msg.Expected)
	}
	if err != nil {
		return nil, convert.RPCError(err)
	}
	b, err := s.h.readRange(id, core.Seq(req.Msg.From), core.Seq(req.Msg.UpTo), int(min(req.Msg.MaxBytes, maxRange)), req.Msg.Copy)
	return answer(&pb.ReadRangeResponse{Batches: b}, err)
}

func (s *service) Copy(ctx context.Context, req *connect.Request[pb.CopyRequest]) (*connect.Response[pb.CopyResponse], error) {
	id, err := extentID(req.Msg.Extent)
	if err == nil {
		err = s.h.checkIdentity(req.Msg.Expected)
	}
	if err != nil {
		return nil, convert.RPCError(err)
	}
	last, err := s.h.copyBatches(ctx, id, req.Msg.Batches)
	return answer(&pb.CopyResponse{Last: uint64(last)}, err)
}

func (s *service) Seek(_ context.Context, req *connect.Request[pb.SeekRequest]) (*connect.Response[pb.SeekResponse], error) {
	id, err := extentID(req.Msg.Extent)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	log, err := s.h.extents()
	if err != nil {
		return nil, convert.RPCError(err)
	}
	seq, err := log.Seek(id, req.Msg.Time.AsTime().UnixMicro())
	if err != nil {
		return nil, convert.RPCError(err)
	}
	state, err := log.State(id)
	return answer(&pb.SeekResponse{Seq: uint64(seq), Last: uint64(state.Last)}, err)
}

// listDueAtOnce bounds the records of one ListDue.
const listDueAtOnce = 1000

func (s *service) ListDue(_ context.Context, req *connect.Request[pb.ListDueRequest]) (*connect.Response[pb.ListDueResponse], error) {
	m := req.Msg
	id, err := extentID(m.Extent)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	log, err := s.h.extents()
	if err != nil {
		return nil, convert.RPCError(err)
	}
	state, err := log.State(id)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	limit := min(state.Committed, state.Last)
	if state.Sealed {
		limit = min(state.L, state.Last)
	}
	if core.Seq(m.UpTo) > limit {
		return nil, convert.RPCError(core.Errorf(core.CodeIncomplete, "extent %s is known up to seq %d here, not %d; try again", id, limit, m.UpTo))
	}
	if m.CountUntil > 0 {
		return answer(countDue(log, id, m))
	}
	out := &pb.ListDueResponse{}
	most := int(min(max(m.MaxRecords, 1), listDueAtOnce))
	run, err := log.Due(id, extentlog.DueQuery{
		After: extentlog.DueKey{At: m.After, Seq: core.Seq(m.AfterSeq)}, Until: extentlog.NeverDue, UpTo: core.Seq(m.UpTo), MaxBytes: int(min(m.MaxBytes, maxRange)),
	}, func(r extentlog.DueRecord) {
		if len(out.Records) == most {
			out.More = true
			return
		}
		out.Records = append(out.Records, &pb.ListDueResponse_Record{Seq: uint64(r.Seq), Due: r.At, Enqueued: r.Enqueued, Record: slices.Clone(r.Record)})
	})
	out.Passed, out.PassedSeq = run.Passed.At, uint64(run.Passed.Seq)
	if last := len(out.Records) - 1; out.More {
		out.Passed, out.PassedSeq = out.Records[last].Due, out.Records[last].Seq
	}
	out.More = out.More || run.More
	return answer(out, err)
}

// countDueBytes is how much of an index is looked through to count what is due.
const countDueBytes = 64 << 20

func countDue(log extentlog.Log, id core.ExtentID, m *pb.ListDueRequest) (*pb.ListDueResponse, error) {
	known, err := knownWindow("a count", m.Known, core.CodeBadArgument)
	if err != nil {
		return nil, err
	}
	out := &pb.ListDueResponse{}
	run, err := log.Due(id, extentlog.DueQuery{Until: m.CountUntil, UpTo: core.Seq(m.UpTo), Known: known, MaxBytes: countDueBytes}, func(r extentlog.DueRecord) {
		out.Count++
		if since := max(r.At*1000, r.Enqueued); out.Oldest == 0 || since < out.Oldest { // a message whose time had passed is due since it was appended
			out.Oldest, out.OldestSeq = since, uint64(r.Seq)
		}
	})
	out.More = run.More
	return out, err
}

func (s *service) GetReplica(_ context.Context, req *connect.Request[pb.GetReplicaRequest]) (*connect.Response[pb.Replica], error) {
	id, err := extentID(req.Msg.Extent)
	if err == nil {
		err = s.h.checkIdentity(req.Msg.Expected)
	}
	if err != nil {
		return nil, convert.RPCError(err)
	}
	log, err := s.h.extents()
	if err != nil {
		return nil, convert.RPCError(err)
	}
	state, err := log.State(id)
	return answer(replica(state), err)
}

// goneAt is from when on a store whose disk hangs does not describe itself: controllers count it as one that is away,
// and wait for it no longer than for such a one.
const goneAt = 10 * time.Second

func (s *service) Describe(context.Context, *connect.Request[pb.DescribeRequest]) (*connect.Response[pb.StoreDescription], error) {
	log, err := s.h.extents()
	if err != nil {
		return nil, convert.RPCError(err)
	}
	v := log.Vitals()
	if v.Hangs >= goneAt {
		return nil, convert.RPCError(core.Errorf(core.CodeUnavailable, "the store's disk has not answered for %s", v.Hangs.Round(time.Second)))
	}
	return answer(&pb.StoreDescription{
		Identity: convert.IdentityToProto(log.Identity()), FreeBytes: v.FreeBytes, TotalBytes: v.TotalBytes, RefusesAppends: v.Refuses || s.h.admits() != nil,
		OpenExtents: uint32(v.OpenExtents), AppendBytesPerSecond: v.AppendBytesPerSecond, SyncMicros: uint32(min(v.SyncP99.Microseconds(), math.MaxUint32)),
		Full: v.Full,
	}, nil)
}

func (s *service) Inventory(_ context.Context, req *connect.Request[pb.InventoryRequest]) (*connect.Response[pb.InventoryResponse], error) {
	identity, found, err := s.h.inventory(req.Msg.Run, req.Msg.Since, req.Msg.Buckets, req.Msg.After)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	out := &pb.InventoryResponse{
		Identity: convert.IdentityToProto(identity), Position: found.Position, Complete: found.FromStart && !found.More, More: found.More,
		FromStart: found.FromStart, Digests: found.Digests[:], Replicas: make([]*pb.Replica, 0, len(found.Replicas)),
	}
	for _, state := range found.Replicas {
		out.Replicas = append(out.Replicas, replica(state))
	}
	for _, id := range found.Removed {
		out.Removed = append(out.Removed, id.ID[:])
	}
	return connect.NewResponse(out), nil
}

func (s *service) Remove(ctx context.Context, req *connect.Request[pb.RemoveRequest]) (*connect.Response[pb.RemoveResponse], error) {
	id, err := extentID(req.Msg.Extent)
	if err == nil {
		err = s.h.checkIdentity(req.Msg.Expected)
	}
	if err == nil {
		err = s.h.remove(ctx, id, req.Msg.Version)
	}
	return answer(&pb.RemoveResponse{}, err)
}

// Verify reads a replica as fast as the disk allows, one at a time: so much reading takes the disk from appends.
func (s *service) Verify(ctx context.Context, req *connect.Request[pb.VerifyReplicaRequest]) (*connect.Response[pb.VerifyReplicaResponse], error) {
	id, err := extentID(req.Msg.Extent)
	if err == nil {
		err = s.h.checkIdentity(req.Msg.Expected)
	}
	if err != nil {
		return nil, convert.RPCError(err)
	}
	v, err := s.h.verify(ctx, id)
	return answer(&pb.VerifyReplicaResponse{Bytes: v.Bytes, Sound: v.Sound, Lifted: v.Lifted, Why: v.Why}, err)
}

func replica(s extentlog.State) *pb.Replica {
	return &pb.Replica{
		Extent: convert.ExtentToProto(s.Extent), Opened: s.Opened, Fenced: s.Fenced, Sealed: s.Sealed, L: uint64(s.L),
		Last: uint64(s.Last), Committed: uint64(s.Committed), Checksum: s.Checksum, Bytes: s.Bytes, Damaged: s.Damaged, Version: s.Version,
	}
}

// verify reads every byte of a replica, after others that are being verified: so much reading takes the disk from
// appends. The log decides by what it finds whether the replica is quarantined. CodeDeadline: nothing is decided.
func (h *Host) verify(ctx context.Context, id core.ExtentID) (extentlog.Verified, error) {
	log, err := h.extents()
	if err != nil {
		return extentlog.Verified{}, err
	}
	if err := h.verifying.Acquire(ctx, 1); err != nil {
		return extentlog.Verified{}, core.Errorf(core.CodeDeadline, "other extents are being verified; verify extent %s later: %w", id, context.Cause(ctx))
	}
	defer h.verifying.Release(1)
	return log.Verify(ctx, id)
}
