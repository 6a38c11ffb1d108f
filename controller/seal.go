package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
	"github.com/columbamq/columba/metadata"
)

// sealing is a seal that several callers wait for. It runs on its own, under the controller's context, so that a caller that
// gives up does not stop it.
type sealing struct {
	done   chan struct{}
	record metadata.SealRecord
	err    error
}

// seal fixes the end of an extent and answers its row. Concurrent calls share one run here, and converge with other controllers' in
// the seal row: open ──CAS──▶ sealing(floor) ──fence──▶ decide L ──copy──▶ CAS ──▶ sealed(L) ──▶ tell the replicas.
func (h *Host) seal(ctx context.Context, e core.Extent, floor core.Seq, reason string, force bool) (metadata.SealRecord, error) {
	for {
		h.mu.Lock()
		s, running := h.mu.seals[e.ID]
		if !running {
			s = &sealing{done: make(chan struct{})}
			h.mu.seals[e.ID] = s
		}
		h.mu.Unlock()
		if !running && !h.tasks.Go(func(ctx context.Context) { h.runSeal(ctx, s, e, floor, reason, force) }) {
			return metadata.SealRecord{}, core.Errorf(core.CodeDraining, "controller is stopping")
		}
		select {
		case <-s.done:
		case <-ctx.Done():
			return metadata.SealRecord{}, core.Errorf(core.CodeDeadline, "seal extent %s: %w", e.ID, context.Cause(ctx))
		}
		// The run of another caller knew nothing of this floor: one that ended without a decision is run again.
		if s.err != nil && running && ctx.Err() == nil {
			continue
		}
		if s.err == nil && s.record.L < floor {
			return s.record, core.Errorf(core.CodeConflict, "extent %s was sealed at %d, below the acknowledged %d", e.ID, s.record.L, floor)
		}
		return s.record, s.err
	}
}

// sealTimeout bounds one try; the next one goes on from the row.
const sealTimeout = 20 * time.Second

func (h *Host) runSeal(ctx context.Context, s *sealing, e core.Extent, floor core.Seq, reason string, force bool) {
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	select {
	case h.slots <- struct{}{}:
		s.record, s.err = h.sealOnce(ctx, e, floor, reason, force)
		<-h.slots
	case <-ctx.Done():
		s.err = core.Errorf(core.CodeDeadline, "seal extent %s: too many seals under way", e.ID)
	}
	h.mu.Lock()
	delete(h.mu.seals, e.ID)
	h.mu.Unlock()
	close(s.done)
}

func (h *Host) sealOnce(ctx context.Context, e core.Extent, floor core.Seq, reason string, force bool) (metadata.SealRecord, error) {
	row, err := h.beginSeal(ctx, e, floor, reason)
	if err != nil || row.State.HasEnd() {
		return row, err
	}
	in := h.fence(ctx, row.Extent)
	in.Floor, in.Force = row.Floor, force
	d := seal.Decide(in)
	if d.Alarm != "" {
		h.metrics.alarms.WithLabelValues(string(d.Alarm)).Inc()
		h.log.Error("seal alarm", "extent", e.ID, "alarm", d.Alarm, "reason", d.Reason)
	}
	if d.Verdict != seal.Decided {
		return row, core.Errorf(core.CodeUnavailable, "extent %s stays sealing: %s", e.ID, d.Reason)
	}
	holders := slices.Clone(d.Holders)
	for _, c := range d.Copies {
		if err := h.copyTail(ctx, row.Extent, c); err != nil {
			h.log.Warn("a replica was not completed", "extent", e.ID, "store", c.To, "err", err)
			continue
		}
		holders = append(holders, c.To)
	}
	if len(holders) == 0 {
		return row, core.Errorf(core.CodeUnavailable, "extent %s stays sealing: no replica is complete to %d", e.ID, d.L)
	}
	row, err = h.endSeal(ctx, e, d, holders, bytesAt(in, d.L))
	if err != nil {
		return row, err
	}
	h.metrics.sealed.WithLabelValues(row.Reason).Inc()
	h.extents.change(e.ID, func(x *extent) { x.state, x.l = row.State, row.L })
	if h.tell(ctx, row) {
		h.finished(ctx, row)
	}
	h.shares.touch(e.Queue)
	return row, nil
}

// beginSeal makes sure the row says sealing, with the highest floor anyone asked for. The tuple comes with the request: the create row
// may have been lost.
func (h *Host) beginSeal(ctx context.Context, e core.Extent, floor core.Seq, reason string) (metadata.SealRecord, error) {
	now := h.deps.now()
	fresh := metadata.SealRecord{Extent: e, State: core.ExtentSealing, Floor: floor, Home: "own", Reason: reason, Attempt: core.NewID(now), Changed: now}
	key := metadata.SealKey(e.ID)
	row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, key, metadata.Serial)
	if core.CodeOf(err) == core.CodeNotFound {
		err = metadata.Create(ctx, h.deps.Meta, metadata.Seals, key, fresh)
		row = fresh
		if core.CodeOf(err) == core.CodeExists {
			row, _, err = metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, key, metadata.Serial)
		}
	}
	if err != nil {
		return row, core.Errorf(core.CodeOf(err), "seal extent %s: %w", e.ID, err)
	}
	if err := h.note(ctx, row); err != nil {
		return row, err
	}
	if row.State.HasEnd() || row.Floor >= floor {
		return row, nil
	}
	row, err = metadata.Change(ctx, h.deps.Meta, metadata.Seals, key, func(r *metadata.SealRecord) error {
		if r.State.HasEnd() || r.Floor >= floor {
			return metadata.ErrNoChange
		}
		r.Floor, r.Changed = floor, now
		return nil
	})
	if err != nil {
		return row, core.Errorf(core.CodeOf(err), "seal extent %s: raise its floor: %w", e.ID, err)
	}
	return row, nil
}

// note brings the cache up to the row. An extent that was unknown, its create row lost, is registered, so that it is found again.
func (h *Host) note(ctx context.Context, row metadata.SealRecord) error {
	if _, known := h.extents.get(row.Extent.ID); !known && row.State != core.ExtentRetired {
		r := metadata.ExtentRecord{Extent: row.Extent, Created: row.Extent.ID.Time()}
		if err := h.writeExtent(ctx, r, h.deps.now()); err != nil {
			return core.Errorf(core.CodeOf(err), "register extent %s: %w", row.Extent.ID, err)
		}
		h.extents.put(extent{ExtentRecord: r})
	}
	h.extents.change(row.Extent.ID, func(x *extent) { x.state, x.l = row.State, row.L })
	return nil
}

// endSeal decides L for ever, unless it was decided before.
func (h *Host) endSeal(ctx context.Context, e core.Extent, d seal.Decision, holders []core.HostID, bytes uint64) (metadata.SealRecord, error) {
	row, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), func(r *metadata.SealRecord) error {
		if r.State.HasEnd() {
			return metadata.ErrNoChange
		}
		if r.Floor > d.L {
			return core.Errorf(core.CodeConflict, "the floor rose to %d meanwhile", r.Floor)
		}
		r.State, r.L, r.Checksum, r.Bytes, r.Holders, r.Changed = core.ExtentSealed, d.L, d.Checksum, bytes, holders, h.deps.now()
		return nil
	})
	if err != nil {
		return row, core.Errorf(core.CodeOf(err), "seal extent %s at %d: %w", e.ID, d.L, err)
	}
	return row, nil
}

// bytesAt is the size of the extent up to l, as far as a replica ends there.
func bytesAt(in seal.Input, l core.Seq) uint64 {
	for _, a := range in.Answers {
		if a.Last == l && a.Health != core.HealthSuspect {
			return a.Bytes
		}
	}
	return 0
}

// fence asks every replica that can be reached to refuse further appends, and collects what they say.
func (h *Host) fence(ctx context.Context, e core.Extent) seal.Input {
	in := seal.Input{Replicas: e.Replicas, Answers: make(map[core.HostID]core.FenceAnswer), Missing: make(map[core.HostID]error)}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, r := range e.Replicas {
		wg.Go(func() {
			a, err := h.fenceOne(ctx, e, r)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				in.Missing[r] = err
			} else {
				in.Answers[r] = a
			}
		})
	}
	wg.Wait()
	return in
}

func (h *Host) fenceOne(ctx context.Context, e core.Extent, store core.HostID) (core.FenceAnswer, error) {
	addr := h.address("storehost", store)
	if addr == "" {
		return core.FenceAnswer{}, core.Errorf(core.CodeUnavailable, "store %s is not there", store)
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	req := &pb.FenceRequest{Extent: convert.ExtentToProto(e), Expected: &pb.StoreIdentity{Store: string(store)}}
	resp, err := h.deps.Peers.Store(addr).Fence(ctx, connect.NewRequest(req))
	if err != nil {
		return core.FenceAnswer{}, convert.FromRPC(err)
	}
	return convert.FenceAnswer(resp.Msg)
}

// tell gives all replicas their end; it reports whether every holder knows it now.
func (h *Host) tell(ctx context.Context, row metadata.SealRecord) bool {
	all := true
	for _, store := range row.Extent.Replicas {
		addr := h.address("storehost", store)
		err := error(core.Errorf(core.CodeUnavailable, "store %s is not there", store))
		if addr != "" {
			cctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
			_, rerr := h.deps.Peers.Store(addr).Seal(cctx, connect.NewRequest(&pb.SealReplicaRequest{
				Extent: convert.ExtentToProto(row.Extent), L: uint64(row.L), Checksum: row.Checksum,
			}))
			cancel()
			err = convert.FromRPC(rerr)
		}
		if err != nil {
			h.log.Info("a replica was not told its end", "extent", row.Extent.ID, "store", store, "err", err)
			all = false
		}
	}
	return all
}

// tellAgain tells the end of an extent that was sealed before.
func (h *Host) tellAgain(ctx context.Context, e extent) {
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.One)
	if err == nil && row.State.HasEnd() && h.tell(ctx, row) {
		h.finished(ctx, row)
	}
}

// finished removes the hint of an extent whose seal is complete.
func (h *Host) finished(ctx context.Context, row metadata.SealRecord) {
	if err := h.deps.Meta.Remove(ctx, metadata.Work, metadata.WorkKey(metadata.PartitionOpen, row.Extent.ID), h.deps.now(), metadata.One); err != nil {
		h.log.Info("a work hint stays behind", "extent", row.Extent.ID, "err", err)
		return
	}
	h.extents.change(row.Extent.ID, func(x *extent) { x.told = true })
}
