package controller

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
	"github.com/columbamq/columba/metadata"
)

// compareReplica looks at what a store says of one replica, and answers whether all is well with it. An inventory is old when it is read:
// whatever takes something away is confirmed with the store first.
func (h *Host) compareReplica(st store, tuple core.Extent, r *pb.Replica, strays *strays) (well bool) {
	e, known := h.extents.get(tuple.ID)
	if !known {
		strays.add(st, tuple, h.deps.now())
		return true
	}
	is := holder{st.ID, st.identity.Disk}
	held := slices.ContainsFunc(e.holders, func(x holder) bool { return x.store == is.store && (x.disk.IsZero() || x.disk == is.disk) })
	switch {
	case e.state == core.ExtentOpen && r.Damaged:
		h.sealSoon(e.Extent, "replica damaged")
	case e.state != core.ExtentSealed:
		return !r.Damaged && !r.Sealed
	case r.Sealed && core.Seq(r.L) != e.l:
		h.metrics.alarms.WithLabelValues(string(seal.AlarmTwoEnds)).Inc()
		h.log.Error("a replica persisted another end than the seal row has", "extent", e.ID, "store", st.ID, "l", r.L, "row", e.l)
	case held && (r.Damaged || r.Last < uint64(e.l) || r.Sealed && r.Checksum != e.checksum):
		h.look(e.ID, func(ctx context.Context) { h.doubt(ctx, e.ID, is) })
	case held && !r.Sealed:
		h.look(e.ID, func(ctx context.Context) { h.tellAgain(ctx, e) })
	case held:
		return true
	case len(e.holders) < e.wanted():
		h.repairs.Want(e.ID)
	case core.Seq(r.Committed) > e.l && !e.forced:
		h.metrics.alarms.WithLabelValues(string(seal.AlarmBelowFloor)).Inc()
		h.log.Error("a replica knows more as committed than the seal row has: it is kept, look at it", "extent", e.ID, "store", st.ID, "committed", r.Committed, "row", e.l)
	default:
		h.look(e.ID, func(ctx context.Context) { h.removeSurplus(ctx, e, is) })
	}
	return false
}

// doubt asks a holder itself, and takes it out of the holders when it does not have what it should.
func (h *Host) doubt(ctx context.Context, id core.ExtentID, at holder) {
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(id), metadata.Serial)
	if err != nil || !slices.Contains(row.Holders, at.store) {
		return
	}
	switch err := h.verify(ctx, row, at); core.CodeOf(err) {
	case core.CodeCorrupt, core.CodeNotFound:
		h.quarantine(ctx, id, at.store, err.Error())
	}
}

// findMissing looks for extents that a store should hold and does not list, and reports whether there are any.
func (h *Host) findMissing(st store, m *mirror) bool {
	at := holder{st.ID, st.identity.Disk}
	missing := h.extents.pick(func(e *extent) bool {
		if e.state != core.ExtentSealed || !e.holds(at.store) {
			return false
		}
		_, listed := m.replicas[e.ID]
		return !listed
	})
	for _, e := range missing {
		h.look(e.ID, func(ctx context.Context) { h.doubt(ctx, e.ID, at) })
	}
	return len(missing) > 0
}

// unopenedAfter is how long an input host may take to open an extent that was made for it, which is a matter of seconds.
const unopenedAfter = 2 * time.Minute

// findUnopened has the extents sealed that were made for an input host that never opened them: the answer was lost, and it published
// nothing since. Nothing can have been acknowledged in an extent of which one replica does not know.
func (h *Host) findUnopened(st store, m *mirror) {
	now := h.deps.now()
	for _, e := range h.extents.unfinished() {
		if _, listed := m.replicas[e.ID]; listed || e.state != core.ExtentOpen || now.Sub(e.Created) < unopenedAfter || !slices.Contains(e.Replicas, st.ID) {
			continue
		}
		h.look(e.ID, func(ctx context.Context) {
			cctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
			_, err := h.deps.Peers.Store(st.Address).GetReplica(cctx, connect.NewRequest(&pb.GetReplicaRequest{Extent: e.ID.ID[:]}))
			cancel()
			if core.CodeOf(convert.FromRPC(err)) == core.CodeNotFound {
				h.sealUnasked(ctx, e.Extent, "never opened")
			}
		})
	}
}

// removeSurplus gives up what a store has that is no holder, once all the copies that are wanted were looked at.
func (h *Host) removeSurplus(ctx context.Context, e extent, from holder) {
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
	if err != nil || row.State != core.ExtentSealed {
		return
	}
	good := 0
	for _, x := range holdersOf(row) {
		if x != from && h.verify(ctx, row, x) == nil {
			good++
		}
	}
	if good < e.wanted() {
		h.repairs.Want(e.ID)
		return
	}
	if row, err = h.decideRemoval(ctx, row, from); err == nil {
		err = h.removeReplica(ctx, row, from)
	}
	if err != nil {
		h.log.Info("a replica that nobody needs stays for now", "extent", e.ID, "store", from.store, "err", err)
		return
	}
	h.log.Info("a replica that nobody needs is removed", "extent", e.ID, "store", from.store, "holders", row.Holders)
}
