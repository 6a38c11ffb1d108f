package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
	"github.com/columbamq/columba/metadata"
)

const (
	// strayAfter is how long metadata must lack an extent before a store's word registers it: a row written at ONE may be late.
	strayAfter = 5 * time.Minute
	// maxStrays bounds how many are remembered; others are met again with the next whole inventory.
	maxStrays = 10_000
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
		h.repairs.want(e.ID)
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
		h.repairs.want(e.ID)
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

// add notes that a store has an extent that is not known here.
func (s *strays) add(st store, tuple core.Extent, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.mu.byID[tuple.ID]
	if x == nil {
		if len(s.mu.byID) >= maxStrays {
			return
		}
		x = &stray{extent: tuple, stores: make(map[core.HostID]core.DiskID), since: now}
		s.mu.byID[tuple.ID] = x
	}
	x.stores[st.ID] = st.identity.Disk
}

// settleStrays decides about extents that only stores know: those retired are removed, those whose rows were lost are registered again,
// and those of no known queue are left alone. A miss or a failed answer removes nothing.
func (h *Host) settleStrays(ctx context.Context, s *strays) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.mu.byID))
	s.mu.Unlock()
	orphans := 0
	for _, x := range all {
		if ctx.Err() != nil {
			return
		}
		settled, err := h.settleStray(ctx, x)
		if err != nil {
			h.log.Info("an extent that only stores know stays as it is for now", "extent", x.extent.ID, "err", err)
		}
		if settled {
			s.mu.Lock()
			delete(s.mu.byID, x.extent.ID)
			s.mu.Unlock()
		} else if x.orphan {
			orphans++
		}
	}
	h.metrics.orphans.Set(float64(orphans))
}

func (h *Host) settleStray(ctx context.Context, x *stray) (settled bool, err error) {
	id := x.extent.ID
	if _, known := h.extents.get(id); known {
		return true, nil
	}
	late := h.deps.now().Sub(x.since) >= strayAfter
	if x.orphan {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(id), metadata.Quorum)
	switch {
	case err == nil && row.State == core.ExtentRetired:
		return h.removeRetired(ctx, row, x)
	case err == nil && late: // its hints were lost
		return true, h.note(ctx, row)
	case err != nil && core.CodeOf(err) != core.CodeNotFound, !late:
		return false, err
	}
	created, err := h.createdRow(ctx, x.extent)
	if err != nil {
		return false, err
	}
	if !created.Extent.Equal(x.extent) {
		return false, core.Errorf(core.CodeConflict, "a store has extent %s with another tuple than its row", id)
	}
	_, _, err = metadata.Read[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(x.extent.Queue), metadata.Quorum)
	if core.CodeOf(err) == core.CodeNotFound {
		x.orphan = true
		h.log.Error("stores have an extent of a queue that nobody knows; it is left alone", "extent", id, "queue", x.extent.Queue, "stores", slices.Sorted(maps.Keys(x.stores)))
		return false, nil
	}
	if err != nil {
		return false, err
	}
	h.log.Warn("an extent whose rows were lost is registered again", "extent", id, "queue", x.extent.Queue)
	_, err = h.seal(ctx, order{extent: x.extent, reason: "registered again"})
	return err == nil, err
}

// createdRow is the create row of an extent, or what a store says of it when there is none.
func (h *Host) createdRow(ctx context.Context, e core.Extent) (metadata.ExtentRecord, error) {
	r, _, err := metadata.Read[metadata.ExtentRecord](ctx, h.deps.Meta, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), metadata.Quorum)
	if core.CodeOf(err) == core.CodeNotFound {
		return metadata.ExtentRecord{Extent: e}, nil
	}
	return r, err
}

// removeRetired removes what stores still have of an extent that was retired while they were away.
func (h *Host) removeRetired(ctx context.Context, row metadata.SealRecord, x *stray) (settled bool, err error) {
	settled = true
	for id, disk := range x.stores {
		if rerr := h.removeReplica(ctx, row, holder{id, disk}); rerr != nil {
			settled, err = false, rerr
		}
	}
	return settled, err
}
