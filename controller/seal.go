package controller

import (
	"context"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
	"github.com/columbamq/columba/metadata"
)

// sealing is a seal that several callers wait for. It runs on its own, under the controller's context, so that a caller
// that gives up does not stop it.
type sealing struct {
	done    chan struct{}
	record  metadata.SealRecord
	decided bool // by this run
	err     error
}

// order is what a caller of a seal wants.
type order struct {
	extent core.Extent
	floor  core.Seq  // the writer's committed seq
	due    time.Time // the writer's word on a timer extent; zero: it is not the writer who asks, or there is nothing in it
	reason string
	force  bool // an operator's word
	// gone is a store that an operator declared to be gone for good; with it, force ends nothing while another replica
	// does not answer.
	gone core.HostID
	// quarantined: that counts for what damaged copies may have, too.
	quarantined bool
	found       bool // a store has the extent
}

// input is what a sealer with this order knows when the row is as it is.
func (o order) input(in seal.Input, row metadata.SealRecord) seal.Input {
	in.Floor, in.Force = row.Floor, o.force
	if o.gone != "" {
		in.Gone, in.Force = []core.HostID{o.gone}, o.force && len(in.Missing) == 0
	}
	return in
}

// seal fixes the end of an extent and answers its row, with the holders it has by now. Concurrent calls share one run
// here, and converge with other controllers' in the seal row:
//
//	open ──CAS──▶ sealing(floor) ──fence──▶ decide L ──copy──▶ CAS ──▶ sealed(L) ──answer──▶ tell the replicas
func (h *Host) seal(ctx context.Context, o order) (metadata.SealRecord, error) {
	e := o.extent
	if known, ok := h.extents.Get(e.ID); ok {
		if !known.Extent.Equal(e) {
			return metadata.SealRecord{}, core.Errorf(core.CodeConflict, "extent %s is known with another tuple", e.ID)
		}
		if known.State.HasEnd() {
			return h.sealed(ctx, o)
		}
	}
	for {
		s, running, ok := h.joinSeal(o)
		if !ok {
			return metadata.SealRecord{}, core.Errorf(core.CodeDraining, "controller is stopping")
		}
		select {
		case <-s.done:
		case <-ctx.Done():
			return metadata.SealRecord{}, core.Errorf(core.CodeDeadline, "seal extent %s: %w", e.ID, context.Cause(ctx))
		}
		// The run of another caller knew nothing of this floor, or of this force: one that ended without a decision is run
		// again.
		if s.err != nil && running && ctx.Err() == nil {
			continue
		}
		if s.err != nil {
			return s.record, s.err
		}
		if s.decided && !running && o.force { // the force was for the end; losses within the extent are given up by another one
			return s.record, nil
		}
		return h.answerEnd(ctx, s.record, o)
	}
}

// joinSeal is the run under way, or a new one; ok is false when the controller is stopping.
func (h *Host) joinSeal(o order) (s *sealing, running, ok bool) {
	h.mu.Lock()
	s, running = h.mu.seals[o.extent.ID]
	if !running {
		s = &sealing{done: make(chan struct{})}
		h.mu.seals[o.extent.ID] = s
	}
	h.mu.Unlock()
	if running {
		return s, true, true
	}
	if !h.tasks.Go(func(ctx context.Context) { h.runSeal(ctx, s, o) }) {
		s.err = core.Errorf(core.CodeDraining, "controller is stopping")
		h.endRun(s, o.extent.ID)
		return s, false, false
	}
	return s, false, true
}

func (h *Host) endRun(s *sealing, id core.ExtentID) {
	h.mu.Lock()
	delete(h.mu.seals, id)
	h.mu.Unlock()
	close(s.done)
}

// sealTimeout bounds one try; the next one goes on from the row.
const sealTimeout = 20 * time.Second

func (h *Host) runSeal(ctx context.Context, s *sealing, o order) {
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	var began time.Time
	if free, err := h.sealSlot(ctx, o); err == nil {
		began = h.deps.now()
		s.record, s.decided, s.err = h.sealOnce(ctx, o)
		<-free
	} else {
		s.err = err
	}
	h.noteStuck(o.extent.ID, s.err != nil)
	h.noteUndecided(o.extent, s.err)
	h.endRun(s, o.extent.ID)
	if !s.decided {
		return
	}
	h.metrics.sealing.Observe(h.deps.now().Sub(began).Seconds())
	h.metrics.sealed.WithLabelValues(reasonLabel(s.record.Reason)).Inc()
	h.shares.touch(catalog.Extent{ExtentRecord: metadata.ExtentRecord{Extent: s.record.Extent}, Home: s.record.Home}.Reader())
	if e, ok := h.extents.Get(o.extent.ID); ok && !sameStores(e) {
		h.shares.touchHolders(e.Extent)
		h.repairs.Want(e.ID)
	}
	h.tell(ctx, s.record)
}

// sealSlot takes a place among the seals under way, to be freed by a receive. A seal that has failed before does not
// wait for one, unless an operator asks: it would hold up others meanwhile.
func (h *Host) sealSlot(ctx context.Context, o order) (free chan struct{}, err error) {
	id := o.extent.ID
	if h.isStuck(id) && !o.force {
		select {
		case h.retries <- struct{}{}:
			return h.retries, nil
		default:
			return nil, core.Errorf(core.CodeThrottled, "seal extent %s: too many seals that have failed before are under way", id)
		}
	}
	select {
	case h.slots <- struct{}{}:
		return h.slots, nil
	case <-ctx.Done():
		return nil, core.Errorf(core.CodeDeadline, "seal extent %s: too many seals under way", id)
	}
}

// sealOnce is one try. Fencing begins before the row says so: it needs no row, and a controller that cannot write has
// at least stopped the extent.
func (h *Host) sealOnce(ctx context.Context, o order) (row metadata.SealRecord, decided bool, err error) {
	fencing := make(chan seal.Input, 1)
	fctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !h.tasks.Go(func(context.Context) { fencing <- h.fence(fctx, o, o.floor) }) {
		return row, false, core.Errorf(core.CodeDraining, "controller is stopping")
	}
	row, made, err := h.beginSeal(ctx, o)
	if err != nil || row.State.HasEnd() {
		return row, false, err
	}
	in := o.input(<-fencing, row)
	d := seal.Decide(in)
	if d.Alarm != "" {
		h.raise(o.extent.ID, d)
	}
	if d.Verdict != seal.Decided {
		return row, false, stays{core.Errorf(core.CodeUnavailable, "extent %s stays sealing: %s", o.extent.ID, d.Reason), d}
	}
	if !d.HasSum {
		if d.Checksum, err = h.checksumOfEnd(ctx, o.extent.ID, placeIn(in, d.Holders[0]), d.L); err != nil {
			return row, false, core.Errorf(core.CodeUnavailable, "extent %s stays sealing: %w", o.extent.ID, err)
		}
	}
	holders := h.complete(ctx, o.extent, d, in)
	row, err = h.endSeal(ctx, made, d, holders, bytesAt(in, d.L))
	if err != nil {
		return row, false, err
	}
	h.extents.Took(row)
	return row, true, nil
}

// checksumOfEnd is the rolling checksum at an end that only replicas beyond it have.
func (h *Host) checksumOfEnd(ctx context.Context, id core.ExtentID, at core.Place, l core.Seq) (uint32, error) {
	sum, whole, err := h.replicas.Checksum(ctx, id, at, l)
	if err == nil && !whole {
		err = core.Errorf(core.CodeCorrupt, "seq %d is not the end of a batch on %s", l, at.Store)
	}
	return sum, err
}

// beginSeal makes sure the row says sealing, with the highest floor anyone asked for. The tuple comes with the request:
// the create row may have been lost. made names the row, and is the row itself if this call has made it, and a store
// says its version.
func (h *Host) beginSeal(ctx context.Context, o order) (row metadata.SealRecord, made metadata.Row, err error) {
	now := h.deps.now()
	e := o.extent
	key := metadata.SealKey(e.ID)
	made.Key = key
	r, err := h.origin(ctx, e)
	if err != nil {
		return row, made, core.Errorf(core.CodeOf(err), "seal extent %s: %w", e.ID, err)
	}
	fresh := metadata.SealRecord{Extent: e, Before: r.Before, Home: r.Home, State: core.ExtentSealing, Floor: o.floor, Due: o.due, Reason: o.reason, Attempt: core.NewID(now), Changed: now}
	// By the open hint a controller that starts knows, once the extent has an end, that its holders may have to be told.
	// Its timestamp is below that of its removal.
	hint := func() error { return h.writeHint(ctx, metadata.HintOpen, r, r.Created, metadata.One) }
	row, err = h.begunSeal(ctx, e.ID)
	if err == nil && !row.State.HasEnd() {
		err = hint() // who began the seal may not have come to that
	} else if core.CodeOf(err) == core.CodeNotFound {
		if err := h.neverSealed(ctx, e); err != nil {
			return row, made, err
		}
		if err := h.wasMade(ctx, o); err != nil {
			return row, made, core.Errorf(core.CodeOf(err), "seal extent %s: %w", e.ID, err)
		}
		var created metadata.Row
		var unhinted error
		err = sideBySide(func() error { unhinted = hint(); return unhinted }, func() (err error) {
			created, err = metadata.CreateRow(ctx, h.deps.Meta, metadata.Seals, key, fresh)
			return err
		})
		if row = fresh; err == nil {
			made = created
		}
		if core.CodeOf(err) == core.CodeExists {
			row, _, err = metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, key, metadata.Serial)
			if err == nil && !row.State.HasEnd() {
				err = unhinted
			}
		}
	}
	if err != nil {
		return row, made, core.Errorf(core.CodeOf(err), "seal extent %s: %w", e.ID, err)
	}
	if !row.Extent.Equal(e) {
		return row, made, core.Errorf(core.CodeConflict, "extent %s is being sealed with another tuple", e.ID)
	}
	if err := h.note(ctx, row); err != nil {
		return row, made, err
	}
	if row.State.HasEnd() || row.Floor >= o.floor {
		return row, made, nil
	}
	row, err = metadata.Change(ctx, h.deps.Meta, metadata.Seals, key, func(r *metadata.SealRecord) error {
		if r.State.HasEnd() || r.Floor >= o.floor {
			return metadata.ErrNoChange
		}
		r.Floor, r.Changed = o.floor, now
		return nil
	})
	if err != nil {
		return row, made, core.Errorf(core.CodeOf(err), "seal extent %s: raise its floor: %w", e.ID, err)
	}
	return row, made, nil
}

// begunSeal reads the row of a seal that may have begun; CodeNotFound. The row only goes on from there. Of an extent
// that nobody seals, as far as this controller knows, there is no row: to create one says so if that is not true, at
// the price of the reading. The row is read while no majority answers, since a reading finds that out sooner.
func (h *Host) begunSeal(ctx context.Context, id core.ExtentID) (row metadata.SealRecord, err error) {
	if known, ok := h.extents.Get(id); ok && known.State == core.ExtentOpen && !h.isStuck(id) && !h.majority.Missed() {
		return row, core.Errorf(core.CodeNotFound, "extent %s is open", id)
	}
	row, _, err = metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(id), metadata.Quorum)
	return row, err
}

// neverSealed refuses an old extent that this controller does not know, and that has no create row: it may have been
// retired so long ago that its seal row has ended. One of a deleted queue is sealed to be removed.
func (h *Host) neverSealed(ctx context.Context, e core.Extent) error {
	if _, known := h.extents.Get(e.ID); known || !metadata.SealMayHaveEnded(e.ID, h.deps.now()) {
		return nil
	}
	created, err := h.createdRow(ctx, e)
	if err == nil && !created.Created.IsZero() {
		return nil
	}
	var q metadata.QueueRecord
	if err == nil {
		q, _, err = metadata.Read[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(e.Queue), metadata.Quorum)
	}
	if (err == nil || core.CodeOf(err) == core.CodeNotFound) && q.Spec.Status != core.StatusDeleted {
		err = core.Errorf(core.CodeConflict, "it has no rows, and may have been retired long ago; if the metadata lost its rows, restore a newer copy")
	}
	if err != nil {
		return core.Errorf(core.CodeOf(err), "seal extent %s: %w", e.ID, err)
	}
	return nil
}

// origin is the create row of an extent, with who reads it until a seal row says that.
func (h *Host) origin(ctx context.Context, e core.Extent) (metadata.ExtentRecord, error) {
	known, ok := h.extents.Get(e.ID)
	if !ok {
		return h.registration(ctx, e) // nobody may read it yet
	}
	r := known.ExtentRecord
	r.Home = known.Home
	return r, nil
}

// note brings the cache up to the row. An extent that was unknown, its create row lost, is registered, so that it is
// found again.
func (h *Host) note(ctx context.Context, row metadata.SealRecord) error {
	if _, known := h.extents.Get(row.Extent.ID); !known && row.State != core.ExtentRetired {
		if h.loaded() == nil { // else knowPlaces does it, before the extent is given out
			if err := h.knowChain(ctx, row.Extent); err != nil {
				return err
			}
		}
		r, err := h.registration(ctx, row.Extent)
		if err == nil {
			err = h.writeExtent(ctx, r, h.deps.now())
		}
		if err != nil {
			return core.Errorf(core.CodeOf(err), "register extent %s: %w", row.Extent.ID, err)
		}
		h.extents.Put(catalog.Extent{ExtentRecord: r, Home: r.Home})
	}
	h.extents.Took(row)
	return nil
}

// endSeal decides L for ever, unless it was decided before. It begins with the row that beginSeal has made, if so.
func (h *Host) endSeal(ctx context.Context, made metadata.Row, d seal.Decision, holders []core.Place, bytes uint64) (metadata.SealRecord, error) {
	row, err := metadata.ChangeFrom(ctx, h.deps.Meta, metadata.Seals, made, func(r *metadata.SealRecord) error {
		if r.State.HasEnd() {
			return metadata.ErrNoChange
		}
		if r.Floor > d.L && !d.Forced {
			return core.Errorf(core.CodeConflict, "the floor rose to %d meanwhile", r.Floor)
		}
		r.State, r.L, r.Checksum, r.Bytes, r.Changed = core.ExtentSealed, d.L, d.Checksum, bytes, h.deps.now()
		r.Forced, r.Lost, r.Version, r.Ended = d.Forced, d.Lost, r.Version+1, r.Changed
		r.SetPlaces(holders)
		r.Unacked = !r.Enough()
		return nil
	})
	if err != nil {
		return row, core.Errorf(core.CodeOf(err), "seal extent %s at %d: %w", made.Key.Row, d.L, err)
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
