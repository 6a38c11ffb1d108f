package controller

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/operations"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// service answers the controller's RPCs.
type service struct{ h *Host }

func (s *service) EnsureExtent(ctx context.Context, req *connect.Request[pb.EnsureExtentRequest]) (*connect.Response[pb.EnsureExtentResponse], error) {
	queue, err := core.IDFromBytes(req.Msg.Queue)
	if err == nil {
		err = s.h.mayServe(ctx)
	}
	if err != nil {
		return nil, convert.RPCError(err)
	}
	run, err := core.IDFromBytes(req.Msg.InputRun)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	input, err := core.ParseHostID(req.Msg.Input)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	have := make([]core.ExtentID, 0, len(req.Msg.Have))
	for _, b := range req.Msg.Have {
		id, err := core.IDFromBytes(b)
		if err != nil {
			return nil, convert.RPCError(err)
		}
		have = append(have, core.ExtentID{ID: id})
	}
	w := wish{
		queue: core.QueueID{ID: queue}, input: input, run: core.RunID{ID: run}, have: have,
		kind: core.ExtentKind(req.Msg.Kind), ahead: core.Horizon(req.Msg.Horizon),
	}
	if err := core.CheckKind(w.kind, w.ahead); err != nil {
		return nil, convert.RPCError(err)
	}
	for _, id := range req.Msg.Avoid {
		w.avoid = append(w.avoid, core.HostID(id))
	}
	if value := req.Msg.QueueRow; len(value) > 0 {
		given, err := metadata.Decode[metadata.QueueRecord](metadata.Queues, metadata.Row{Key: metadata.QueueKey(w.queue), Value: value})
		if err != nil {
			return nil, convert.RPCError(err)
		}
		w.row, w.given = &given, true
	}
	e, err := s.h.ensureExtent(ctx, w)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	out := &pb.EnsureExtentResponse{Extent: convert.ExtentToProto(e), Open: uint32(s.h.openExtents(w))}
	if e.Chain > 0 {
		out.Open = 1
	}
	for _, r := range e.Replicas {
		st, ok := s.h.stores.Get(r)
		if !ok || st.Address == "" {
			return nil, convert.RPCError(core.Errorf(core.CodeUnavailable, "store %s of extent %s is gone", r, e.ID))
		}
		out.Stores = append(out.Stores, &pb.HostAddress{Id: string(r), Address: st.Address})
	}
	return connect.NewResponse(out), nil
}

func (s *service) SealExtent(ctx context.Context, req *connect.Request[pb.SealExtentRequest]) (*connect.Response[pb.SealExtentResponse], error) {
	e, err := convert.Extent(req.Msg.Extent)
	if err == nil {
		err = s.h.mayServe(ctx)
	}
	if err != nil {
		return nil, convert.RPCError(err)
	}
	o := order{extent: e, floor: core.Seq(req.Msg.Floor), reason: clipReason(req.Msg.Reason), force: req.Msg.Force, quarantined: req.Msg.Force && req.Msg.GiveUpQuarantined}
	if req.Msg.Due != nil {
		o.due = req.Msg.Due.AsTime()
	}
	ended := func(context.Context, error) {}
	if o.force {
		if err := s.h.whenLoaded(ctx); err != nil { // it gives up what no store has, and has to know them
			return nil, convert.RPCError(err)
		}
		what := "force seal: "
		if o.quarantined {
			what = "force seal, give up quarantined copies: "
		}
		who := cmp.Or(req.Msg.GetWho(), req.Peer().Addr) // a frontend of the version before does not say who asked it
		if ended, err = s.h.audit(ctx, slog.LevelWarn, who, what+o.reason, e.ID.String()); err != nil {
			return nil, convert.RPCError(err)
		}
	}
	r, err := s.h.seal(ctx, o)
	ended(ctx, err)
	if err != nil {
		return nil, convert.RPCError(s.h.nowhere(err))
	}
	out := &pb.SealExtentResponse{L: uint64(r.L), Bytes: r.Bytes}
	for _, holder := range r.Holders {
		if r.LostFrom == 0 { // else nobody is known to have all of it
			out.Holders = append(out.Holders, string(holder))
		}
	}
	return connect.NewResponse(out), nil
}

func (s *service) ListUndecided(ctx context.Context, req *connect.Request[pb.ListUndecidedRequest]) (*connect.Response[pb.ListUndecidedResponse], error) {
	if err := s.h.whenLoaded(ctx); err != nil {
		return nil, convert.RPCError(err)
	}
	var queue core.QueueID
	if len(req.Msg.Queue) > 0 {
		id, err := core.IDFromBytes(req.Msg.Queue)
		if err != nil {
			return nil, convert.RPCError(err)
		}
		queue.ID = id
	}
	all := s.h.undecided.list(func(x undecidedExtent) bool { return queue.IsZero() || x.Queue == queue })
	out := &pb.ListUndecidedResponse{Count: uint32(len(all))}
	for _, x := range all[:min(len(all), sealPage)] {
		out.Extents = append(out.Extents, x.proto())
	}
	return connect.NewResponse(out), nil
}

func (x undecidedExtent) proto() *pb.UndecidedExtent {
	out := &pb.UndecidedExtent{Extent: x.ID.String(), Queue: x.Queue.String(), Since: timestamppb.New(x.since), Reason: x.reason}
	for _, id := range x.away {
		out.Away = append(out.Away, string(id))
	}
	return out
}

func (s *service) SealAllOfStore(ctx context.Context, req *connect.Request[pb.SealAllOfStoreRequest]) (*connect.Response[pb.SealAllOfStoreResponse], error) {
	if err := s.h.whenLoaded(ctx); err != nil {
		return nil, convert.RPCError(err)
	}
	store, err := core.ParseHostID(req.Msg.GetStore())
	if err != nil {
		return nil, convert.RPCError(err)
	}
	var after core.ExtentID
	if req.Msg.GetAfter() != "" {
		if after.ID, err = core.ParseID(req.Msg.GetAfter()); err != nil {
			return nil, convert.RPCError(err)
		}
	}
	ended := func(context.Context, error) {}
	if !req.Msg.GetDryRun() {
		if ended, err = s.h.audit(ctx, slog.LevelWarn, req.Msg.GetWho(), "force seal of all extents: the store is gone", string(store)); err != nil {
			return nil, convert.RPCError(err)
		}
	}
	all, more, err := s.h.sealAllOfStore(ctx, store, after, req.Msg.GetDryRun())
	ended(ctx, err)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	out := &pb.SealAllOfStoreResponse{}
	for _, x := range all {
		e := x.proto()
		e.Outcome, e.LastSeq, e.Lost = x.what, uint64(x.l), uint64(x.lost)
		out.Extents = append(out.Extents, e)
	}
	if more {
		out.Next = all[len(all)-1].ID.String()
	}
	return connect.NewResponse(out), nil
}

// mostOrphans bounds an answer about orphans.
const mostOrphans = 1000

func (s *service) DeleteOrphans(ctx context.Context, req *connect.Request[pb.DeleteOrphansRequest]) (*connect.Response[pb.DeleteOrphansResponse], error) {
	if err := s.h.whenLoaded(ctx); err != nil {
		return nil, convert.RPCError(err)
	}
	s.h.strays.keep(s.h.inventories)
	all := s.h.strays.orphaned()
	out := &pb.DeleteOrphansResponse{Count: uint32(len(all))}
	for _, x := range all[:min(len(all), mostOrphans)] {
		e := &pb.OrphanExtent{Extent: x.extent.ID.String(), Queue: x.extent.Queue.String(), Since: timestamppb.New(x.since)}
		for _, id := range slices.Sorted(maps.Keys(x.stores)) {
			e.Stores = append(e.Stores, string(id))
		}
		out.Extents = append(out.Extents, e)
	}
	if req.Msg.GetDryRun() || len(all) == 0 {
		return connect.NewResponse(out), nil
	}
	ended, err := s.h.audit(ctx, slog.LevelWarn, req.Msg.GetWho(), "delete the extents of unknown queues", strconv.Itoa(len(all))+" extents")
	if err != nil {
		return nil, convert.RPCError(err)
	}
	s.h.strays.orphans.end()
	s.h.strays.lookAgain(s.h.deps.now())
	ended(ctx, nil)
	return connect.NewResponse(out), nil
}

func (s *service) StartGroup(ctx context.Context, req *connect.Request[pb.StartGroupRequest]) (*connect.Response[pb.StartGroupResponse], error) {
	if err := s.h.whenLoaded(ctx); err != nil {
		return nil, convert.RPCError(err)
	}
	queue, err := core.IDFromBytes(req.Msg.Queue)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	group, err := core.IDFromBytes(req.Msg.Group)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	if err := s.h.startGroup(ctx, core.QueueID{ID: queue}, req.Msg.Name, core.GroupID{ID: group}); err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(&pb.StartGroupResponse{}), nil
}

func (s *service) BeginOperation(ctx context.Context, req *connect.Request[pb.BeginOperationRequest]) (*connect.Response[pb.BeginOperationResponse], error) {
	if err := s.h.beginOperation(ctx, req.Msg); err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(&pb.BeginOperationResponse{}), nil
}

func (h *Host) beginOperation(ctx context.Context, req *pb.BeginOperationRequest) error {
	if err := h.mayServe(ctx); err != nil {
		return err
	}
	asked := req.GetOperation()
	id, err := core.ParseID(asked.GetId())
	if err != nil {
		return err
	}
	var concerned core.QueueID
	if concerned.ID, err = core.IDFromBytes(req.GetObject()); err != nil {
		return err
	}
	path, err := core.ParseQueuePath(asked.GetQueue())
	if err != nil {
		return err
	}
	name, _, err := metadata.Read[metadata.NameRecord](ctx, h.deps.Meta, metadata.Names, metadata.NameKey(path), metadata.Serial)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "look up queue %s: %w", path, err)
	}
	what, object := asked.GetKind()+" dead letters", core.DLQPath(path, asked.GetGroup())
	if asked.GetSelection() != nil {
		what = asked.GetKind() + " selected dead letters"
	}
	if asked.GetGroup() == "" {
		what, object = asked.GetKind()+" queue", path
	}
	ended, err := h.audit(ctx, slog.LevelInfo, req.GetWho(), what, object)
	if err != nil {
		return err
	}
	_, err = h.letters.Start(ctx, operations.Order{
		ID: id, Kind: metadata.OperationKind(asked.GetKind()), Queue: name.Queue, Group: asked.GetGroup(), Rate: int(asked.GetRate()), Who: req.GetWho(),
		Object: concerned, Selection: convert.Selection(asked.GetSelection()),
	})
	ended(ctx, err)
	return err
}

func (s *service) EndOperation(ctx context.Context, req *connect.Request[pb.EndOperationRequest]) (*connect.Response[pb.EndOperationResponse], error) {
	id, err := core.ParseID(req.Msg.GetId())
	if err == nil {
		err = s.h.mayServe(ctx)
	}
	if err != nil {
		return nil, convert.RPCError(err)
	}
	ended, err := s.h.audit(ctx, slog.LevelInfo, req.Msg.GetWho(), "cancel operation", id.String())
	if err != nil {
		return nil, convert.RPCError(err)
	}
	_, err = s.h.letters.Cancel(ctx, id)
	ended(ctx, err)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(&pb.EndOperationResponse{}), nil
}

// rewindOf reads which queue's group goes where.
func (s *service) rewindOf(req *pb.RewindGroupRequest) (queue core.QueueID, group core.GroupID, to core.Start, err error) {
	if queue.ID, err = core.IDFromBytes(req.GetQueue()); err == nil {
		group.ID, err = core.IDFromBytes(req.GetId())
	}
	if err == nil {
		to, err = core.ParseStart(req.GetTo(), s.h.deps.now())
	}
	return queue, group, to, err
}

func (s *service) PreviewRewind(ctx context.Context, req *connect.Request[pb.RewindGroupRequest]) (*connect.Response[pb.SeekPreview], error) {
	if err := s.h.whenLoaded(ctx); err != nil {
		return nil, convert.RPCError(err)
	}
	queue, group, to, err := s.rewindOf(req.Msg)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	out, err := s.h.previewRewind(ctx, queue, req.Msg.GetGroup(), group, to)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(out), nil
}

func (s *service) RewindGroup(ctx context.Context, req *connect.Request[pb.RewindGroupRequest]) (*connect.Response[pb.RewindGroupResponse], error) {
	if err := s.h.whenLoaded(ctx); err != nil {
		return nil, convert.RPCError(err)
	}
	queue, group, to, err := s.rewindOf(req.Msg)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	ended, err := s.h.audit(ctx, slog.LevelInfo, req.Msg.GetWho(), "seek to "+req.Msg.GetTo(), s.h.queueName(ctx, queue)+"/"+req.Msg.GetGroup())
	if err != nil {
		return nil, convert.RPCError(err)
	}
	epoch, err := s.h.rewindGroup(ctx, queue, req.Msg.GetGroup(), group, to, 0)
	ended(ctx, err)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(&pb.RewindGroupResponse{Epoch: epoch}), nil
}

func (s *service) LeaseQuota(ctx context.Context, req *connect.Request[pb.LeaseQuotaRequest]) (*connect.Response[pb.LeaseQuotaResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, s.h.cfg.CallTimeout)
	defer cancel()
	out, err := s.h.quotas.Lease(ctx, req.Msg)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(out), nil
}

// queueName is the path of a queue for the audit, by which operators look for its entries; its id when the path cannot
// be read.
func (h *Host) queueName(ctx context.Context, queue core.QueueID) string {
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(queue), metadata.One)
	if err != nil {
		return queue.String()
	}
	return q.Spec.Path
}
