package operations

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// atOnce bounds the operations that run side by side here; others wait for a place. An operation that pauses for
	// longer, because of its rate, gives its place up.
	atOnce = 16
	// keptFor is how long an operation that has ended can be looked up.
	keptFor = 7 * 24 * time.Hour
	// sweepEvery is how often those are looked for that ended before that.
	sweepEvery = time.Hour
	// saveEvery is how often the ends of extents that are being sealed are recorded.
	saveEvery = time.Second
	// stepTimeout bounds one step, a seal above all.
	stepTimeout = 30 * time.Second
)

// Run works on all operations until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(r.Every)
	defer tick.Stop()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	var failures core.Recurring
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.wake:
		case <-sweep.C:
			if err := r.sweep(ctx); err != nil && ctx.Err() == nil {
				r.Log.Info("operations that ended long ago stay for now", "err", err)
			}
		}
		if err := r.round(ctx, &wg); err == nil {
			failures.Succeeded()
		} else if ctx.Err() == nil && failures.Failed(r.Now()) {
			r.Log.Warn("operations cannot be read, and wait; they are read again with the next round", "err", err)
		}
	}
}

// round takes on the operations of this controller's objects that run and are not worked on yet. A row that is damaged
// holds up no other; the round answers why it cannot be decoded.
func (r *Runner) round(ctx context.Context, wg *sync.WaitGroup) (damaged error) {
	for o, err := range metadata.All[metadata.OperationRecord](ctx, r.Meta, metadata.Operations, metadata.PartitionOperation, metadata.One) {
		if o.Damaged(err) {
			damaged = err
			continue
		}
		if err != nil {
			return err
		}
		if !r.Responsible(o.Value.Object.ID) {
			continue
		}
		now := r.Now()
		odd := retimed(&o.Value, now).Before(o.Value.Next)
		if o.Value.Ended() && !unclean(o.Value) || !odd && rests(&o.Value, now.Add(r.Every)) || !r.enter(o.Value.Object) {
			continue
		}
		wg.Go(func() {
			defer r.leave(o.Value.Object)
			r.work(ctx, o.Value.Object)
		})
	}
	return damaged
}

func (r *Runner) enter(object core.QueueID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, busy := r.mu.active[object]
	if busy || len(r.mu.active) >= atOnce {
		return false
	}
	r.mu.active[object] = struct{}{}
	return true
}

func (r *Runner) leave(object core.QueueID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.active, object)
}

// work takes an operation on until it has ended or must wait, or is another controller's; the next round goes on.
func (r *Runner) work(ctx context.Context, object core.QueueID) {
	o, _, err := metadata.Read[metadata.OperationRecord](ctx, r.Meta, metadata.Operations, metadata.OperationKey(object.ID), metadata.Serial)
	if err == nil && !o.Ended() {
		err = r.drive(ctx, &o)
	}
	if err == nil {
		err = r.clear(ctx, &o)
	}
	if err == nil && o.Ended() && o.Selection != nil && !o.Decided { // what was found here while another one came to the end
		err = r.forgetFound(ctx, o.ID)
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, errGone), errors.Is(err, errNoQueue), errors.Is(err, errScattered):
		r.fail(ctx, o, err)
	default:
		r.Log.Info("an operation waits", "operation", o.ID, "kind", o.Kind, "queue", o.Path, "group", o.Name, "err", err)
		r.note(ctx, o, err.Error())
	}
}

// errGone, errNoQueue: there is nothing to work on any more.
var (
	errGone    = errors.New("the group was deleted")
	errNoQueue = errors.New("the queue was deleted")
)

// drive does one step after another. o is the operation as it is known.
func (r *Runner) drive(ctx context.Context, o *metadata.OperationRecord) error {
	if err := r.check(ctx, *o); err != nil {
		return err
	}
	if err := r.retime(ctx, o); err != nil {
		return err
	}
	extents, err := r.known(ctx, o)
	if err != nil {
		return err
	}
	saved := r.Now()
	for r.Responsible(o.Object.ID) {
		now := r.Now()
		due := false
		switch next(o) {
		case nothing:
			return nil
		case cover, widen:
			if err := r.find(ctx, o, extents); err != nil {
				return err
			}
			due = true
		case sealNext:
			l, err := r.seal(ctx, o.Extents[o.Sealed], *o, extents)
			if err != nil {
				return err
			}
			sealed(o, l)
			due = o.Sealed == len(o.Extents) || now.Sub(saved) >= saveEvery
		case discard, stage, register, search, decide, show:
			lost, err := r.selectNext(ctx, o)
			if err != nil {
				return err
			}
			if lost != nil { // the next one may come to nothing, too: it waits for the next round
				if err := r.save(ctx, o); err != nil {
					return err
				}
				return lost
			}
			due = true
		case moveNext:
			if o.Selection != nil {
				if err := r.removeNext(ctx, o, now); err != nil {
					return err
				}
				due = true
				break
			}
			wait, err := r.moveNext(ctx, o, now)
			if err != nil || wait && (rests(o, now.Add(r.Every)) || !r.pause(ctx, o.Next.Sub(now))) {
				return err
			}
			due = true
		case endOfWork:
			note, err := r.heard(ctx, *o)
			if err != nil {
				return err
			}
			return r.finish(ctx, o, join(note, beyond(*o)))
		}
		if due {
			saved = now
			if err := r.save(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// retime notes by this host's clock when the next extent may move.
func (r *Runner) retime(ctx context.Context, o *metadata.OperationRecord) error {
	now := r.Now().UTC()
	if !retimed(o, now).Before(o.Next) {
		return nil
	}
	row, err := metadata.Change(ctx, r.Meta, metadata.Operations, metadata.OperationKey(o.Object.ID), func(row *metadata.OperationRecord) error {
		at := retimed(row, now)
		if row.ID != o.ID || !at.Before(row.Next) {
			return metadata.ErrNoChange
		}
		row.Next = at
		return nil
	})
	switch {
	case err != nil:
		return core.Errorf(core.CodeOf(err), "note when it goes on: %w", err)
	case row.ID != o.ID:
		o.State = metadata.OperationCancelled
	default:
		*o = row
	}
	return nil
}

// check reports errGone when the group is not there any more, errNoQueue when the queue is not.
func (r *Runner) check(ctx context.Context, o metadata.OperationRecord) error {
	if o.Group.IsZero() {
		_, err := r.queue(ctx, o.Object)
		if core.CodeOf(err) == core.CodeNotFound {
			return errNoQueue
		}
		return err
	}
	g, _, err := metadata.Read[metadata.GroupRecord](ctx, r.Meta, metadata.Groups, metadata.GroupKey(o.Queue, o.Name), metadata.Serial)
	switch {
	case core.CodeOf(err) == core.CodeNotFound || err == nil && (g.ID != o.Group || !usable(g)):
		return errGone
	case err != nil:
		return core.Errorf(core.CodeOf(err), "look up group %s: %w", o.Name, err)
	}
	return nil
}

// seal fixes the end of an extent and answers how many messages the operation has there.
func (r *Runner) seal(ctx context.Context, id core.ExtentID, o metadata.OperationRecord, extents map[core.ExtentID]metadata.ExtentRecord) (core.Seq, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	row, _, err := metadata.Read[metadata.SealRecord](ctx, r.Meta, metadata.Seals, metadata.SealKey(id), metadata.Serial)
	if core.CodeOf(err) == core.CodeNotFound || err == nil && !row.State.HasEnd() {
		e := extents[id].Extent
		if e.ID.IsZero() {
			e = row.Extent
		}
		if e.ID.IsZero() { // it was removed: its queue's rows are going
			return 0, nil
		}
		row, err = r.Owner.Seal(ctx, e, string(o.Kind)+"d")
	}
	switch {
	case err != nil:
		return 0, core.Errorf(core.CodeOf(err), "fix the end of extent %s: %w", id, err)
	case row.State == core.ExtentRetired || !concerns(&o, row.Home) && row.Home != home(o):
		return 0, nil
	}
	return row.Remaining(), nil
}

// moveNext changes the home of the next extent, unless the rate says that it has to wait.
func (r *Runner) moveNext(ctx context.Context, o *metadata.OperationRecord, now time.Time) (wait bool, err error) {
	if rests(o, now) {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	to, id := home(*o), o.Extents[o.Moved]
	row, err := metadata.Change(ctx, r.Meta, metadata.Seals, metadata.SealKey(id), func(row *metadata.SealRecord) error {
		switch {
		case !concerns(o, row.Home) || row.State == core.ExtentRetired: // this operation's, by a try of before, or another's
			return metadata.ErrNoChange
		case row.State != core.ExtentSealed:
			return core.Errorf(core.CodeUnavailable, "it is %s: whether it stays is being decided", row.State)
		}
		row.Home, row.Homed, row.Rate, row.Changed = to, now.UTC(), o.Rate, now
		row.Version, row.Attempt = row.Version+1, core.NewID(now)
		return nil
	})
	switch {
	case core.CodeOf(err) == core.CodeNotFound: // never sealed: it was removed before
	case err != nil:
		return false, core.Errorf(core.CodeOf(err), "change the home of extent %s: %w", id, err)
	default:
		r.Owner.Rehomed(row)
	}
	l := core.Seq(0)
	if err == nil && row.Home == to && row.State != core.ExtentRetired {
		l = row.Remaining()
	}
	moved(o, l, now)
	return false, nil
}

// pause waits, not longer than until somebody may have cancelled; false: ctx has ended.
func (r *Runner) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(min(max(d, time.Millisecond), saveEvery)):
		return true
	}
}
