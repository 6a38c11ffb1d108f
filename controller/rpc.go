package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/operations"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// service answers the controller's RPCs.
type service struct{ h *Host }

func (s *service) EnsureExtent(ctx context.Context, req *connect.Request[pb.EnsureExtentRequest]) (*connect.Response[pb.EnsureExtentResponse], error) {
	queue, err := core.IDFromBytes(req.Msg.Queue)
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
	e, err := s.h.ensureExtent(ctx, w)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	out := &pb.EnsureExtentResponse{Extent: convert.ExtentToProto(e), Open: uint32(s.h.openExtents(w))}
	if e.Chain > 0 {
		out.Open = 1
	}
	for _, r := range e.Replicas {
		st, ok := s.h.stores.get(r)
		if !ok || st.Address == "" {
			return nil, convert.RPCError(core.Errorf(core.CodeUnavailable, "store %s of extent %s is gone", r, e.ID))
		}
		out.Stores = append(out.Stores, &pb.HostAddress{Id: string(r), Address: st.Address})
	}
	return connect.NewResponse(out), nil
}

func (s *service) SealExtent(ctx context.Context, req *connect.Request[pb.SealExtentRequest]) (*connect.Response[pb.SealExtentResponse], error) {
	e, err := convert.Extent(req.Msg.Extent)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	o := order{extent: e, floor: core.Seq(req.Msg.Floor), reason: req.Msg.Reason, force: req.Msg.Force, quarantined: req.Msg.Force && req.Msg.GiveUpQuarantined}
	if req.Msg.Due != nil {
		o.due = req.Msg.Due.AsTime()
	}
	ended := func(context.Context, error) {}
	if o.force {
		what := "force seal: "
		if o.quarantined {
			what = "force seal, give up quarantined copies: "
		}
		who := cmp.Or(req.Msg.GetWho(), req.Peer().Addr) // a frontend of the version before does not say who asked it
		if ended, err = s.h.audit(ctx, who, what+o.reason, e.ID.String()); err != nil {
			return nil, convert.RPCError(err)
		}
	}
	r, err := s.h.seal(ctx, o)
	ended(ctx, err)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	out := &pb.SealExtentResponse{L: uint64(r.L), Bytes: r.Bytes}
	for _, holder := range r.Holders {
		if r.LostFrom == 0 { // else nobody is known to have all of it
			out.Holders = append(out.Holders, string(holder))
		}
	}
	return connect.NewResponse(out), nil
}

func (s *service) ListUndecided(_ context.Context, req *connect.Request[pb.ListUndecidedRequest]) (*connect.Response[pb.ListUndecidedResponse], error) {
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
		if ended, err = s.h.audit(ctx, req.Msg.GetWho(), "force seal of all extents: the store is gone", string(store)); err != nil {
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
	ended, err := s.h.audit(ctx, req.Msg.GetWho(), "delete the extents of unknown queues", strconv.Itoa(len(all))+" extents")
	if err != nil {
		return nil, convert.RPCError(err)
	}
	s.h.strays.orphans.end()
	s.h.strays.lookAgain(s.h.deps.now())
	ended(ctx, nil)
	return connect.NewResponse(out), nil
}

func (s *service) StartGroup(ctx context.Context, req *connect.Request[pb.StartGroupRequest]) (*connect.Response[pb.StartGroupResponse], error) {
	queue, err := core.IDFromBytes(req.Msg.Queue)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	if err := s.h.startGroup(ctx, core.QueueID{ID: queue}, req.Msg.Name); err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(&pb.StartGroupResponse{}), nil
}

func (s *service) ListAssignments(ctx context.Context, req *connect.Request[pb.ListAssignmentsRequest]) (*connect.Response[pb.AssignmentList], error) {
	owner, err := core.ParseHostID(req.Msg.Owner)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	run, err := core.IDFromBytes(req.Msg.Run)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	list, err := s.h.listFor(ctx, owner, core.RunID{ID: run})
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(list), nil
}

func (s *service) BeginOperation(ctx context.Context, req *connect.Request[pb.BeginOperationRequest]) (*connect.Response[pb.BeginOperationResponse], error) {
	if err := s.h.beginOperation(ctx, req.Msg); err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(&pb.BeginOperationResponse{}), nil
}

func (h *Host) beginOperation(ctx context.Context, req *pb.BeginOperationRequest) error {
	asked := req.GetOperation()
	id, err := core.ParseID(asked.GetId())
	if err != nil {
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
	ended, err := h.audit(ctx, req.GetWho(), what, object)
	if err != nil {
		return err
	}
	_, err = h.letters.Start(ctx, operations.Order{
		ID: id, Kind: metadata.OperationKind(asked.GetKind()), Queue: name.Queue, Group: asked.GetGroup(), Rate: int(asked.GetRate()), Who: req.GetWho(),
		Selection: convert.Selection(asked.GetSelection()),
	})
	ended(ctx, err)
	return err
}

func (s *service) EndOperation(ctx context.Context, req *connect.Request[pb.EndOperationRequest]) (*connect.Response[pb.EndOperationResponse], error) {
	id, err := core.ParseID(req.Msg.GetId())
	if err != nil {
		return nil, convert.RPCError(err)
	}
	ended, err := s.h.audit(ctx, req.Msg.GetWho(), "cancel operation", id.String())
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

// deadLetters is what operations need of the controller.
type deadLetters struct{ h *Host }

// Extents implements operations.Owner.
func (d deadLetters) Extents(queue core.QueueID) (out []metadata.ExtentRecord) {
	for _, e := range d.h.extents.of(queue) {
		out = append(out, e.ExtentRecord)
	}
	return out
}

// Seal implements operations.Owner.
func (d deadLetters) Seal(ctx context.Context, e core.Extent, reason string) (metadata.SealRecord, error) {
	return d.h.seal(ctx, order{extent: e, reason: reason})
}

// Rehomed implements operations.Owner.
func (d deadLetters) Rehomed(row metadata.SealRecord) {
	if was, known := d.h.extents.get(row.Extent.ID); known {
		d.h.shares.touch(was.reader())
	}
	d.h.extents.took(row)
	d.h.shares.touch(row.Extent.Queue)
	if row.RemovedCount > 0 {
		d.h.shares.touchHolders(row.Extent) // its readers hear of it with their lists, too
	}
	if reader, ok := row.Home.Reader(row.Extent.Queue); ok {
		d.h.shares.touch(reader)
	}
}

// lookTimeout bounds one look into an extent while there is another output host to ask.
const lookTimeout = 10 * time.Second

// hearEvery is how often it is looked whether output hosts have confirmed their lists.
const hearEvery = 20 * time.Millisecond

// Heard implements operations.Owner.
func (d deadLetters) Heard(ctx context.Context, queues ...core.QueueID) error {
	tick := time.NewTicker(hearEvery)
	defer tick.Stop()
	var versions map[core.HostID]uint64
	for {
		owners := d.h.hosts.live("outputhost")
		listed := versions != nil
		if !listed {
			versions, listed = d.h.shares.listed(queues, owners)
		}
		unheard := d.h.shares.unheard(owners, versions)
		if listed && len(unheard) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if !listed {
				return core.Errorf(core.CodeDeadline, "output hosts may not have heard of it yet: their lists are being made")
			}
			return core.Errorf(core.CodeDeadline, "output hosts %v have not confirmed it yet", unheard)
		}
	}
}

// Stage implements operations.Owner.
func (d deadLetters) Stage(ctx context.Context, queue core.QueueID, operation core.ID) (core.Extent, error) {
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, d.h.deps.Meta, metadata.Queues, metadata.QueueKey(queue), metadata.One)
	if err != nil {
		return core.Extent{}, core.Errorf(core.CodeOf(err), "make a staging extent: %w", err)
	}
	now := d.h.deps.now()
	e := core.Extent{
		ID: core.ExtentID{ID: core.NewID(now)}, Queue: queue, Kind: core.KindLog, Durability: q.Spec.Durability,
		Input: d.h.deps.Members.Self().ID, InputRun: core.RunID{ID: operation}, Token: core.WriterToken{ID: core.NewID(now)}, // no run of a host writes to it
	}
	if err := d.h.choose(ctx, &e, q.Spec, nil); err != nil {
		return core.Extent{}, core.Errorf(core.CodeOf(err), "make a staging extent: %w", err)
	}
	return e, nil
}

// Register implements operations.Owner. The seal row is first: without it the extent would be read by all groups of its queue.
func (d deadLetters) Register(ctx context.Context, e core.Extent, operation core.ID) error {
	now := d.h.deps.now()
	home := core.Home{Kind: core.HomeStaging, Operation: operation}
	row := metadata.SealRecord{Extent: e, State: core.ExtentOpen, Home: home, Reason: "staged", Attempt: core.NewID(now), Changed: now}
	err := metadata.Create(ctx, d.h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), row)
	if core.CodeOf(err) == core.CodeExists {
		row, _, err = metadata.Read[metadata.SealRecord](ctx, d.h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
		if err == nil && row.Home != home {
			err = core.Errorf(core.CodeConflict, "its home is %s", row.Home)
		}
	}
	r := metadata.ExtentRecord{Extent: e, Created: e.ID.Time()}
	if err == nil {
		var q metadata.QueueRecord
		q, _, err = metadata.Read[metadata.QueueRecord](ctx, d.h.deps.Meta, metadata.Queues, metadata.QueueKey(e.Queue), metadata.One)
		r.Wanted = q.Spec.Replicas
	}
	if err == nil {
		err = d.h.writeExtent(ctx, r, now)
	}
	if err != nil {
		return core.Errorf(core.CodeOf(err), "register staging extent %s: %w", e.ID, err)
	}
	d.h.extents.put(extent{ExtentRecord: r, state: core.ExtentOpen, home: home})
	d.h.extents.took(row)
	return nil
}

// Usable implements operations.Owner.
func (d deadLetters) Usable(e core.Extent) bool { return d.h.writable(e, nil) }

// SealStage implements operations.Owner.
func (d deadLetters) SealStage(ctx context.Context, e core.Extent, last core.Seq) (metadata.SealRecord, error) {
	return d.h.seal(ctx, order{extent: e, floor: last, reason: "staged"})
}

// Look implements operations.Owner: the output host that has the first say in the queue is asked first.
func (d deadLetters) Look(ctx context.Context, l operations.Look) (operations.Found, error) {
	req := &pb.SelectDeadLettersRequest{
		Selection: convert.SelectionToProto(l.Selection), Extent: convert.ExtentToProto(l.Extent), From: uint64(l.From), UpTo: uint64(l.Row.ReadableTo()), Removed: l.Row.Removed,
		Base: uint64(l.At.Last), Checksum: l.At.Checksum, AppendTime: l.At.AppendTime,
	}
	if !l.Stage.ID.IsZero() {
		req.Stage = convert.ExtentToProto(l.Stage)
	}
	err := error(core.Errorf(core.CodeUnavailable, "no output host is there"))
	hosts := core.Rank(l.Extent.Queue.String(), d.h.hosts.live("outputhost"), func(m membership.Host) core.HostID { return m.ID })
	for i, m := range hosts {
		cctx, cancel := ctx, context.CancelFunc(func() {})
		if i < len(hosts)-1 {
			cctx, cancel = context.WithTimeout(ctx, lookTimeout)
		}
		resp, rerr := d.h.deps.Peers.Output(m.Address).SelectDeadLetters(cctx, connect.NewRequest(req))
		cancel()
		if rerr == nil {
			at := operations.At{Last: core.Seq(resp.Msg.Base), Checksum: resp.Msg.Checksum, AppendTime: resp.Msg.AppendTime}
			return operations.Found{Next: core.Seq(resp.Msg.Next), Matched: resp.Msg.Matched, Looked: resp.Msg.Looked, At: at}, nil
		}
		if err = convert.FromRPC(rerr); core.CodeOf(err) == core.CodeConflict || ctx.Err() != nil {
			break
		}
	}
	return operations.Found{}, err
}

func (s *service) RewindGroup(ctx context.Context, req *connect.Request[pb.RewindGroupRequest]) (*connect.Response[pb.RewindGroupResponse], error) {
	id, err := core.IDFromBytes(req.Msg.GetQueue())
	if err != nil {
		return nil, convert.RPCError(err)
	}
	to, err := core.ParseStart(req.Msg.GetTo(), s.h.deps.now())
	if err != nil {
		return nil, convert.RPCError(err)
	}
	queue := core.QueueID{ID: id}
	ended, err := s.h.audit(ctx, req.Msg.GetWho(), "seek to "+req.Msg.GetTo(), s.h.queueName(ctx, queue)+"/"+req.Msg.GetGroup())
	if err != nil {
		return nil, convert.RPCError(err)
	}
	epoch, err := s.h.rewindGroup(ctx, queue, req.Msg.GetGroup(), to, 0)
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

// queueName is the path of a queue for the audit, by which operators look for its entries; its id when the path cannot be read.
func (h *Host) queueName(ctx context.Context, queue core.QueueID) string {
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(queue), metadata.One)
	if err != nil {
		return queue.String()
	}
	return q.Spec.Path
}
