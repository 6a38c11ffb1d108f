package retirement

import (
	"context"
	"maps"
	"slices"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Deleted removes the extents of deleted queues: sealed first, then retired in the seal row, which stays as a
// tombstone, then deleted by their stores, with what is kept of their groups' progress. An answer of the metadata that
// is missing or failed deletes nothing. It is for the queues of hints, and for those whose rows a round has read.
func (r *Runner) Deleted(ctx context.Context) {
	r.deletedQueues(ctx)
	for _, id := range r.deletedWithExtents() {
		if ctx.Err() != nil {
			return
		}
		q, _, err := metadata.Read[metadata.QueueRecord](ctx, r.cfg.Meta, metadata.Queues, metadata.QueueKey(id), metadata.Serial)
		if err != nil || q.Spec.Status != core.StatusDeleted {
			continue
		}
		for _, e := range r.cfg.Extents.Of(q.ID) {
			r.owner.Look(e.ID, func(ctx context.Context) {
				if err := r.retire(ctx, q, e); err != nil && ctx.Err() == nil {
					r.cfg.Log.Info("an extent of a deleted queue stays for now", "extent", e.ID, "queue", q.Spec.Path, "err", err)
				}
			})
		}
	}
}

// isDeleted notes that a queue seems to be deleted.
func (r *Runner) isDeleted(queue core.QueueID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.deleted[queue] = struct{}{}
}

// deletedWithExtents are the queues that seem to be deleted and have extents. Others are forgotten.
func (r *Runner) deletedWithExtents() []core.QueueID {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.mu.deleted, func(id core.QueueID, _ struct{}) bool { return !r.cfg.Extents.Has(id) || !r.cfg.Responsible(id.ID) })
	return slices.Collect(maps.Keys(r.mu.deleted))
}

func (r *Runner) retire(ctx context.Context, q metadata.QueueRecord, e catalog.Extent) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if !e.State.HasEnd() {
		err := r.owner.Seal(ctx, e.Extent, "queue deleted")
		if err != nil && e.State == core.ExtentOpen {
			return err // the next round does without its end: stores that have it may never be back, and nobody needs it
		}
		if err != nil {
			if nerr := r.nameless(ctx, q); nerr != nil {
				return core.Errorf(core.CodeOf(nerr), "%w: %w", nerr, err)
			}
		}
	}
	row, err := metadata.Change(ctx, r.cfg.Meta, metadata.Seals, metadata.SealKey(e.ID), func(row *metadata.SealRecord) error {
		if row.State == core.ExtentRetired {
			return metadata.ErrNoChange
		}
		row.State, row.Version, row.Changed = core.ExtentRetired, row.Version+1, r.cfg.Now()
		return nil
	})
	if err != nil {
		return err
	}
	if err := r.forget(ctx, row); err != nil { // what output hosts save late goes with its group's rows
		return err
	}
	return r.remove(ctx, e, row)
}

// nameless fails while a deleted queue has its path: the deletion waits until nothing can be acknowledged in the queue
// any more, and goes by its extents.
func (r *Runner) nameless(ctx context.Context, q metadata.QueueRecord) error {
	name, _, err := metadata.Read[metadata.NameRecord](ctx, r.cfg.Meta, metadata.Names, metadata.NameKey(q.Spec.Path), metadata.Serial)
	switch {
	case core.CodeOf(err) == core.CodeNotFound || err == nil && name.Queue != q.ID:
		return nil
	case err != nil:
		return err
	}
	return core.Errorf(core.CodeUnavailable, "the path of the queue is free once its extents are sealed")
}

// remove has the stores delete an extent, removes its hints and its create row, and forgets it.
func (r *Runner) remove(ctx context.Context, e catalog.Extent, row metadata.SealRecord) error {
	if err := r.owner.Delete(ctx, row); err != nil {
		return err
	}
	if err := r.removeRow(ctx, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID)); err != nil {
		return err
	}
	if err := r.endRow(ctx, e.Extent); err != nil {
		return err
	}
	for _, hint := range []metadata.Hint{metadata.HintOpen, metadata.HintLive} { // the hint by which all this is found again goes last
		if err := r.removeRow(ctx, metadata.Work, metadata.HintKey(hint, e.ID)); err != nil {
			return err
		}
	}
	if e.Kind == core.KindTimer { // one that is being cancelled just now leaves a row, which nobody reads
		if err := progress.ForgetCancelled(ctx, r.cfg.Meta, e.ID); err != nil {
			r.cfg.Log.Info("the cancellation row of a retired extent stays in the metadata", "extent", e.ID, "err", err)
		}
	}
	r.owner.Forget(e.Extent, e.Home)
	return nil
}

// endRow has the seal row of a removed extent end after metadata.SealRowLife. From then on only the age of the extent
// says that it may have been retired. So the create row, which would say that the extent is open, has to be gone
// before. The head of a CP queue keeps its seal row: the head record names the extent, and a head without a seal row is
// open.
func (r *Runner) endRow(ctx context.Context, e core.Extent) error {
	if e.Chain > 0 {
		head, err := metadata.ReadHead(ctx, r.cfg.Meta, e.Queue, metadata.Serial)
		if err != nil || head.Extent.ID == e.ID {
			return err
		}
	}
	_, err := metadata.ChangeFor(ctx, r.cfg.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.SealRowLife, func(row *metadata.SealRecord) error {
		if row.State != core.ExtentRetired {
			return core.Errorf(core.CodeConflict, "the row of extent %s says %s", e.ID, row.State)
		}
		return nil
	})
	if core.CodeOf(err) == core.CodeNotFound {
		return nil
	}
	return err
}

// removeRow removes a row that nobody changes, by the time when it was written: the clock of its writer may be ahead of
// this one. A row that is written again meanwhile stays: a controller that lists it finds the extent retired, and
// removes it. Reads at Quorum that follow, as those of a group that starts, do not find the row.
func (r *Runner) removeRow(ctx context.Context, t metadata.Table, k metadata.Key) error {
	row, err := r.cfg.Meta.Get(ctx, t, k, metadata.Quorum)
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
		return nil
	case err != nil:
		return err
	}
	return r.cfg.Meta.Remove(ctx, t, k, row.Written.Add(metadata.Tick), metadata.Quorum)
}

// removeDrained removes an extent that retention has retired, with what is kept of its groups' progress.
func (r *Runner) removeDrained(ctx context.Context, e catalog.Extent) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	row, _, err := metadata.Read[metadata.SealRecord](ctx, r.cfg.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
	if err == nil && row.State != core.ExtentRetired {
		err = core.Errorf(core.CodeConflict, "its row says %s", row.State)
	}
	if err == nil {
		err = r.forget(ctx, row)
	}
	if err == nil {
		err = r.remove(ctx, e, row)
	}
	if err != nil && ctx.Err() == nil {
		r.cfg.Log.Info("a retired extent stays for now", "extent", e.ID, "err", err)
	}
	return err
}

// forget removes what is kept of the groups' progress in an extent. One that does not come to its end goes on with the
// next call.
func (r *Runner) forget(ctx context.Context, row metadata.SealRecord) error {
	return r.goOn(row.Extent.ID.ID, func(place *progress.Place) error { return progress.Forget(ctx, r.cfg.Meta, row, place, r.cfg.Now()) })
}

// placesKept bounds the removals whose places are kept; one whose place is not begins again.
const placesKept = 256

// goOn calls f with the place where it stopped the last time, and keeps the place unless f comes to its end.
func (r *Runner) goOn(id core.ID, f func(*progress.Place) error) error {
	r.mu.Lock()
	place := r.mu.places[id]
	r.mu.Unlock()
	if place == nil {
		place = progress.NewPlace()
	}
	err := f(place)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.places, id)
	if err == nil || place.Len() == 0 {
		return err
	}
	for other := range r.mu.places {
		if len(r.mu.places) < placesKept {
			break
		}
		delete(r.mu.places, other)
	}
	r.mu.places[id] = place
	return err
}
