package controller

import (
	"context"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/operations"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// deadLetters is what operations need of the controller.
type deadLetters struct{ h *Host }

// Seal implements operations.Owner.
func (d deadLetters) Seal(ctx context.Context, e core.Extent, reason string) (metadata.SealRecord, error) {
	return d.h.seal(ctx, order{extent: e, reason: reason})
}

// Rehomed implements operations.Owner.
func (d deadLetters) Rehomed(row metadata.SealRecord) {
	if was, known := d.h.extents.Get(row.Extent.ID); known {
		d.h.shares.touch(was.Reader())
	}
	d.h.extents.Took(row)
	d.h.shares.touch(row.Extent.Queue)
	if row.RemovedCount > 0 {
		d.h.shares.touchHolders(row.Extent) // its readers hear of it with their lists, too
	}
	if reader, ok := row.Home.Reader(row.Extent.Queue); ok {
		d.h.shares.touch(reader)
	}
}

// Unreached implements operations.Owner.
func (d deadLetters) Unreached() []core.HostID { return d.h.unreached() }

// lookTimeout bounds one look into an extent while there is another output host to ask.
const lookTimeout = 10 * time.Second

// Stage implements operations.Owner.
func (d deadLetters) Stage(ctx context.Context, queue core.QueueID, operation core.ID) (core.Extent, error) {
	q, err := d.h.queueRow(ctx, queue)
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

// Register implements operations.Owner. The seal row is first: without it the extent would be read by all groups of its
// queue.
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
		q, err = d.h.queueRow(ctx, e.Queue)
		r.Wanted = q.Spec.Replicas
	}
	if err == nil {
		err = d.h.writeExtent(ctx, r, now)
	}
	if err != nil {
		return core.Errorf(core.CodeOf(err), "register staging extent %s: %w", e.ID, err)
	}
	d.h.extents.Put(catalog.Extent{ExtentRecord: r, State: core.ExtentOpen, Home: home})
	d.h.extents.Took(row)
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
