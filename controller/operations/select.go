package operations

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/metadata"
)

// maxRemoved bounds the encoding of what was taken of one extent singly: it is in the extent's row.
const maxRemoved = 48 << 10

// errScattered: a selection takes too many single messages of one extent.
var errScattered = errors.New("it takes too many messages of one extent, too far apart, to be kept track of; select by age, or take all")

// selectNext does the next step of a search, or of what it found. lost says why a staging extent has come to nothing;
// another one is made then.
func (r *Runner) selectNext(ctx context.Context, o *metadata.OperationRecord) (lost, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var s metadata.Search
	if o.Search != nil {
		s = *o.Search
	}
	s.Step++
	switch at := next(o); at {
	case discard:
		if err = r.purge(ctx, s.Discard[0], o.ID); err == nil {
			s.Discard = slices.Delete(slices.Clone(s.Discard), 0, 1)
		}
	case stage:
		if copies(o) {
			s.Stage, err = r.Owner.Stage(ctx, o.Object, o.ID)
		}
	case register:
		if err = r.Owner.Register(ctx, s.Stage, o.ID); err == nil {
			s.Staged = true
		}
	case search:
		err = r.look(ctx, o, &s)
	case decide:
		if err = r.complete(ctx, o); err == nil {
			o.Decided = true
			return nil, nil
		}
	case show:
		if err = r.show(ctx, o); err == nil {
			o.Shown = true
		}
		return nil, err
	}
	switch {
	case err == nil:
		o.Search = &s
		return nil, nil
	case s.Staged && (core.CodeOf(err) == core.CodeConflict || !r.Owner.Usable(s.Stage)):
		o.Search = &metadata.Search{Step: s.Step, Discard: append(slices.Clone(s.Discard), s.Stage.ID)}
		return core.Errorf(core.CodeOf(err), "staging extent %s came to nothing and is made again: %w", s.Stage.ID, err), nil
	}
	return nil, err
}

// look compares the next part of an extent with the selection. The found seqs are recorded first. So a part that is
// compared twice, by two controllers or after a crash, has the same result.
func (r *Runner) look(ctx context.Context, o *metadata.OperationRecord, s *metadata.Search) error {
	id := o.Extents[s.Extents]
	row, _, err := metadata.Read[metadata.SealRecord](ctx, r.Meta, metadata.Seals, metadata.SealKey(id), metadata.Serial)
	if err != nil && core.CodeOf(err) != core.CodeNotFound {
		return core.Errorf(core.CodeOf(err), "read the row of extent %s: %w", id, err)
	}
	from := max(s.From, 1)
	if err != nil || row.Home.Kind != core.HomeOwn || row.State == core.ExtentRetired || from > row.ReadableTo() {
		s.Extents, s.From = s.Extents+1, 0
		return nil
	}
	found, err := r.Owner.Look(ctx, Look{
		Selection: *o.Selection, Extent: row.Extent, Row: row, From: from, Stage: s.Stage, At: At{s.Last, s.Checksum, s.AppendTime},
	})
	if err != nil {
		return core.Errorf(core.CodeOf(err), "look through extent %s: %w", id, err)
	}
	matched, err := window(found.Matched)
	if err != nil {
		return err
	}
	n := count(matched)
	if n > 0 {
		if err := r.noteFound(ctx, o.ID, row, matched); err != nil {
			return err
		}
	}
	s.Looked, s.Found = s.Looked+found.Looked, s.Found+n
	s.Last, s.Checksum, s.AppendTime = found.At.Last, found.At.Checksum, found.At.AppendTime
	s.From = found.Next
	if s.From > row.ReadableTo() {
		s.Extents, s.From = s.Extents+1, 0
	}
	return nil
}

// noteFound adds to what the operation found in an extent.
func (r *Runner) noteFound(ctx context.Context, op core.ID, row metadata.SealRecord, matched *acklevel.Window) error {
	key := metadata.SelectedKey(op, row.Extent.ID)
	gone, err := row.Gone()
	if err != nil {
		return err
	}
	add := func(rec *metadata.SelectedRecord) error {
		all, err := window(rec.Found)
		if err != nil {
			return err
		}
		all.Merge(matched)
		rec.Found, _ = all.Append(nil)
		rec.Count = count(all)
		gone.Merge(all)
		if b, _ := gone.Append(nil); len(b) > maxRemoved {
			return errScattered
		}
		return nil
	}
	var fresh metadata.SelectedRecord
	if err := add(&fresh); err != nil {
		return err
	}
	err = metadata.Create(ctx, r.Meta, metadata.Operations, key, fresh)
	if core.CodeOf(err) == core.CodeExists {
		_, err = metadata.Change(ctx, r.Meta, metadata.Operations, key, add)
	}
	if err != nil && !errors.Is(err, errScattered) {
		err = core.Errorf(core.CodeOf(err), "record what was found in extent %s: %w", row.Extent.ID, err)
	}
	return err
}

// complete has the copies end where the search ended, durably.
func (r *Runner) complete(ctx context.Context, o *metadata.OperationRecord) error {
	s := o.Search
	if !copies(o) || s.Last == 0 {
		return nil
	}
	row, err := r.Owner.SealStage(ctx, s.Stage, s.Last)
	switch {
	case err != nil:
		return core.Errorf(core.CodeOf(err), "fix the end of staging extent %s: %w", s.Stage.ID, err)
	case row.L != s.Last || row.LostFrom > 0 || row.Checksum != s.Checksum || row.Home.Kind != core.HomeStaging:
		return core.Errorf(core.CodeConflict, "staging extent %s ends at %d, not at %d, or is another", s.Stage.ID, row.L, s.Last)
	}
	return nil
}

// removeNext takes out of the next extent what was found in it. When nothing is left of it, nobody reads it any more. A
// controller that has not heard of the end of an earlier merge may merge the extent meanwhile: then its group does not
// get what was found.
func (r *Runner) removeNext(ctx context.Context, o *metadata.OperationRecord, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	id := o.Extents[o.Moved]
	rec, _, err := metadata.Read[metadata.SelectedRecord](ctx, r.Meta, metadata.Operations, metadata.SelectedKey(o.ID, id), metadata.Serial)
	if core.CodeOf(err) == core.CodeNotFound {
		moved(o, 0, now)
		return nil
	}
	if err != nil {
		return core.Errorf(core.CodeOf(err), "read what was found in extent %s: %w", id, err)
	}
	row, err := metadata.Change(ctx, r.Meta, metadata.Seals, metadata.SealKey(id), func(row *metadata.SealRecord) error {
		gone, err := row.Gone()
		if err != nil {
			return err
		}
		found, err := window(rec.Found)
		if err != nil {
			return err
		}
		gone.Merge(found)
		n := count(gone)
		switch {
		case row.Home.Kind != core.HomeOwn && row.Home != core.MergedInto(o.Queue, o.Group), row.State == core.ExtentRetired, n == row.RemovedCount:
			return metadata.ErrNoChange
		case row.State != core.ExtentSealed:
			return core.Errorf(core.CodeUnavailable, "it is %s: whether it stays is being decided", row.State)
		}
		row.Removed, _ = gone.Append(nil)
		if row.RemovedCount = n; row.Remaining() == 0 && row.Home.Kind == core.HomeOwn {
			row.Home, row.Homed = core.Home{Kind: core.HomePurged}, now.UTC()
		}
		row.Version, row.Attempt, row.Changed = row.Version+1, core.NewID(now), now
		return nil
	})
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
	case err != nil:
		return core.Errorf(core.CodeOf(err), "take out of extent %s what was found: %w", id, err)
	default:
		r.Owner.Rehomed(row)
	}
	moved(o, core.Seq(rec.Count), now)
	return nil
}

// show gives the staging extent to its group; one without a message goes.
func (r *Runner) show(ctx context.Context, o *metadata.OperationRecord) error {
	if o.Search.Last == 0 {
		return r.purge(ctx, o.Search.Stage.ID, o.ID)
	}
	return r.rehome(ctx, o.Search.Stage.ID, o.ID, home(*o), o.Rate)
}

// purge has a staging extent go.
func (r *Runner) purge(ctx context.Context, id core.ExtentID, op core.ID) error {
	return r.rehome(ctx, id, op, core.Home{Kind: core.HomePurged}, 0)
}

// rehome changes the home of an operation's staging extent, unless it has another one already.
func (r *Runner) rehome(ctx context.Context, id core.ExtentID, op core.ID, to core.Home, rate int) error {
	row, err := metadata.Change(ctx, r.Meta, metadata.Seals, metadata.SealKey(id), func(row *metadata.SealRecord) error {
		if row.Home.Kind != core.HomeStaging || row.Home.Operation != op {
			return metadata.ErrNoChange
		}
		now := r.Now()
		row.Home, row.Homed, row.Rate, row.Changed = to, now.UTC(), rate, now
		row.Version, row.Attempt = row.Version+1, core.NewID(now)
		return nil
	})
	if core.CodeOf(err) == core.CodeNotFound {
		return nil
	}
	if err != nil {
		return core.Errorf(core.CodeOf(err), "change the home of extent %s: %w", id, err)
	}
	r.Owner.Rehomed(row)
	return nil
}

// unclean reports whether an operation that has ended left something that only it needed.
func unclean(o metadata.OperationRecord) bool { return o.Ended() && o.Selection != nil && !o.Cleared }

// clear removes what an operation that has ended leaves: copies that nobody is to see, and what it found without taking
// it.
func (r *Runner) clear(ctx context.Context, o *metadata.OperationRecord) error {
	if !unclean(*o) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if s := o.Search; s != nil {
		stages := slices.Clone(s.Discard)
		if !o.Shown && !s.Stage.ID.IsZero() {
			if !s.Staged { // who was about to make its rows does not make them later, then
				if err := r.Owner.Register(ctx, s.Stage, o.ID); err != nil && core.CodeOf(err) != core.CodeConflict {
					return err
				}
			}
			stages = append(stages, s.Stage.ID)
		}
		for _, id := range stages {
			if err := r.purge(ctx, id, o.ID); err != nil {
				return err
			}
		}
	}
	if !o.Decided { // else it tells who took a message, as long as the operation is kept
		if err := r.forgetFound(ctx, o.ID); err != nil {
			return err
		}
	}
	row, err := metadata.Change(ctx, r.Meta, metadata.Operations, metadata.OperationKey(o.Object.ID), func(now *metadata.OperationRecord) error {
		if now.ID != o.ID || now.Cleared {
			return metadata.ErrNoChange
		}
		now.Cleared = true
		return nil
	})
	if err == nil && row.ID == o.ID {
		*o = row
	}
	return err
}

// forgetFound removes what an operation found.
func (r *Runner) forgetFound(ctx context.Context, op core.ID) error {
	for row, err := range metadata.All[metadata.SelectedRecord](ctx, r.Meta, metadata.Operations, metadata.SelectedPartition(op), metadata.Serial) {
		if err != nil {
			return core.Errorf(core.CodeOf(err), "list what was found: %w", err)
		}
		err := metadata.Delete(ctx, r.Meta, metadata.Operations, row.Key, row.Version)
		if err != nil && core.CodeOf(err) != core.CodeNotFound {
			return core.Errorf(core.CodeOf(err), "forget what was found: %w", err)
		}
	}
	return nil
}

// window decodes one; none is empty.
func window(b []byte) (*acklevel.Window, error) {
	row := metadata.SealRecord{Removed: b}
	return row.Gone()
}

func count(w *acklevel.Window) uint64 { return uint64(w.Frontier()) + w.Above() }
