// Package progress reads how much of its sealed extents each group of a queue has consumed, and deletes that state when
// an extent is removed.
package progress

import (
	"context"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// Progress is how far the groups of a queue are, as the metadata had it serially: every group that is not deleted.
type Progress []group

type group struct {
	metadata.GroupRecord
	done map[core.ExtentID]time.Time
}

// Only is the progress of one of the groups.
func (p Progress) Only(id core.GroupID) Progress {
	return slices.DeleteFunc(slices.Clone(p), func(g group) bool { return g.ID != id })
}

// Names are of groups that were listed before: their rows never go, so a list that lacks one is not whole.
type Names map[string]struct{}

// Read reads it, and the names for the next time. An error, or a list of groups that is not whole, is no progress.
func Read(ctx context.Context, meta metadata.Store, queue core.QueueID, before Names) (out Progress, names Names, err error) {
	names = make(Names)
	for g, err := range metadata.All[metadata.GroupRecord](ctx, meta, metadata.Groups, queue.String(), metadata.Serial) {
		if err != nil {
			return nil, nil, core.Errorf(core.CodeOf(err), "list its groups: %w", err)
		}
		names[g.Key.Row] = struct{}{}
		if g.Value.Spec.Status == core.StatusDeleted {
			continue
		}
		done, err := consumedAt(ctx, meta, g.Value)
		if err != nil {
			return nil, nil, core.Errorf(core.CodeOf(err), "list what group %s has consumed: %w", g.Key.Row, err)
		}
		out = append(out, group{g.Value, done})
	}
	for name := range before {
		if _, listed := names[name]; !listed {
			return nil, nil, core.Errorf(core.CodeUnavailable, "the list of its groups lacks %s, which was there before", name)
		}
	}
	return out, names, nil
}

// consumedAt is when a group had consumed the extents that it has, in its present epoch; nothing for one that is half
// made, or on its way to another epoch.
func consumedAt(ctx context.Context, meta metadata.Store, g metadata.GroupRecord) (map[core.ExtentID]time.Time, error) {
	if !g.Started || g.Rewind != nil {
		return nil, nil
	}
	return metadata.Consumed(ctx, meta, g.ID, g.Epoch, metadata.Serial)
}

// Consumed is when each group had consumed an extent, in its present epoch; zero for one that has not, or is half made.
func (p Progress) Consumed(id core.ExtentID) []time.Time {
	out := make([]time.Time, len(p))
	for i, g := range p {
		out[i] = g.done[id]
	}
	return out
}

// Unconsumed is how many messages of a sealed extent the group that is furthest behind has not consumed, or a little
// more: what it consumed out of order is not counted. Without a group it is all of them. Messages taken by selections
// are not counted.
func (p Progress) Unconsumed(ctx context.Context, meta metadata.Store, row metadata.SealRecord) (uint64, error) {
	if len(p) == 0 {
		return uint64(row.Remaining()), nil
	}
	gone, err := row.Gone()
	if err != nil {
		return 0, err
	}
	most := uint64(0)
	for _, g := range p {
		if _, done := g.done[row.Extent.ID]; done {
			continue
		}
		upTo, err := frontier(ctx, meta, g.GroupRecord, row.Extent)
		if err != nil {
			return 0, err
		}
		if upTo < row.L {
			most = max(most, uint64(row.L-upTo)-gone.Within(upTo+1, row.L))
		}
	}
	return most, nil
}

// frontier is the seq up to which a group has consumed an extent.
func frontier(ctx context.Context, meta metadata.Store, g metadata.GroupRecord, e core.Extent) (core.Seq, error) {
	state, err := saved(ctx, meta, g, e, metadata.Quorum)
	return state.Frontier(), err
}

// Settled is how many messages of an extent of its queue a group has consumed, as of its checkpoints of the last second
// or so.
func Settled(ctx context.Context, meta metadata.Store, g metadata.GroupRecord, id core.ExtentID) (uint64, error) {
	state, err := saved(ctx, meta, g, core.Extent{ID: id, Queue: g.Queue}, metadata.One)
	return state.Consumed(), err
}

// Saved is how far a group is with an extent, which ends at l if it has its end, in its present epoch, as of the last
// second or so; where a rewind changes nothing, in any.
func Saved(ctx context.Context, meta metadata.Store, g metadata.GroupRecord, e core.Extent, l core.Seq) (dispatch.State, error) {
	return present(ctx, meta, g, e, l, metadata.One)
}

// saved merges the checkpoints of a share in the group's present epoch; where a rewind changes nothing, in any. One
// that cannot be read counts as nothing consumed.
func saved(ctx context.Context, meta metadata.Store, g metadata.GroupRecord, e core.Extent, c metadata.Consistency) (state dispatch.State, err error) {
	var rows []dispatch.Saved
	for row, err := range metadata.Rows(ctx, meta, metadata.Checkpoints, metadata.CheckpointPartition(g.ID, e.ID), c) {
		if err != nil {
			return dispatch.State{}, err
		}
		epoch, run, ok := metadata.CheckpointOf(row.Key)
		if s, err := dispatch.DecodeState(row.Value); err == nil && ok && (e.Queue != g.Queue || epoch == g.Epoch) {
			rows = append(rows, dispatch.Saved{Version: dispatch.Version{Run: run, Written: row.Written.UnixMicro()}, State: s})
		}
	}
	return dispatch.MergeSaved(rows), nil
}

// CarryUntil takes a group's progress up to a seq of an extent, which ends at l if it has its end, over to another
// epoch; all above it is to come once more.
func CarryUntil(ctx context.Context, meta metadata.Store, g metadata.GroupRecord, epoch uint64, e core.Extent, l, seq core.Seq, now time.Time) error {
	state, err := present(ctx, meta, g, e, l, metadata.Quorum)
	if err != nil {
		return err
	}
	state = state.Until(seq)
	return meta.Put(ctx, metadata.Checkpoints, metadata.CheckpointKey(g.ID, e.ID, epoch, core.RunID{}), state.Append(nil), now, 0, metadata.Quorum)
}

// Unsettled is how many messages of an extent, which ends at l if it has its end, a group has not consumed up to a seq
// in its present epoch.
func Unsettled(ctx context.Context, meta metadata.Store, g metadata.GroupRecord, e core.Extent, l, seq core.Seq) (uint64, error) {
	state, err := present(ctx, meta, g, e, l, metadata.Quorum)
	if err != nil {
		return 0, err
	}
	state = state.Until(seq)
	return uint64(seq) - min(state.Consumed(), uint64(seq)), nil
}

// present is how far a group is with an extent in its present epoch. An owner that has consumed an extent removes its
// checkpoint: the done row says so.
func present(ctx context.Context, meta metadata.Store, g metadata.GroupRecord, e core.Extent, l core.Seq, c metadata.Consistency) (dispatch.State, error) {
	state, err := saved(ctx, meta, g, e, c)
	if err != nil || l == 0 || state.Consumed() >= uint64(l) { // without an end it cannot be consumed
		return state, err
	}
	if done, err := metadata.IsConsumed(ctx, meta, g.ID, e.ID, g.Epoch, c); err != nil || done {
		return dispatch.StartAfter(l), err
	}
	return state, nil
}

// DoneFor is how long it stays known that a group is past an extent that was removed: lists of shares and tokens of
// before may still be about.
const DoneFor = 24 * time.Hour

// Forget removes the checkpoints of a retired extent, and has the done row of the present epoch expire; those of other
// epochs go at once. Groups whose rows are forgotten already cost nothing.
func Forget(ctx context.Context, meta metadata.Store, row metadata.SealRecord, place *Place, now time.Time) error {
	every := func(core.GroupID) bool { return true }
	if err := forget(ctx, meta, row, row.Extent.Queue, every, place, now); err != nil || row.Home.Kind != core.HomeMerged {
		return err
	}
	return forget(ctx, meta, row, row.Home.Queue, row.Home.ReadBy, place, now)
}

// forget is Forget for some groups of a queue.
func forget(ctx context.Context, meta metadata.Store, row metadata.SealRecord, queue core.QueueID, which func(core.GroupID) bool, place *Place, now time.Time) error {
	all := newShares()
	for g, err := range metadata.All[metadata.GroupRecord](ctx, meta, metadata.Groups, queue.String(), metadata.Quorum) {
		if err != nil {
			_ = all.g.Wait()
			return err
		}
		if g := g.Value; which(g.ID) && !g.Forgotten && !all.remove(func() error { return forgetIn(ctx, meta, row, g, place, now) }) {
			break
		}
	}
	return all.g.Wait()
}

// forgetIn is Forget for one group.
func forgetIn(ctx context.Context, meta metadata.Store, row metadata.SealRecord, g metadata.GroupRecord, place *Place, now time.Time) error {
	id := row.Extent.ID
	if g.Spec.Status == core.StatusDeleted { // it needs no done row, and one that is there goes with the group's others
		return place.once(g.ID.ID, func() error { return forgetShare(ctx, meta, g.ID, id, now) })
	}
	if err := forgetShare(ctx, meta, g.ID, id, now); err != nil {
		return err
	}
	key, at := metadata.DoneKey(g.ID, id, g.Epoch), now
	for old, err := range metadata.DonesOf(ctx, meta, g.ID, id, metadata.Quorum) {
		switch {
		case err != nil:
			return err
		case old.Key == key:
			at = later(at, old.Written)
		default:
			if err := meta.Remove(ctx, metadata.Dones, old.Key, later(now, old.Written), metadata.Quorum); err != nil {
				return err
			}
		}
	}
	done := metadata.DoneRecord{L: row.L, Epoch: g.Epoch, Stays: row.Extent.Queue != g.Queue}
	return metadata.Write(ctx, meta, metadata.Dones, key, done, at, DoneFor, metadata.Quorum)
}

// ForgetEpochs removes a group's done rows of the epochs before one. Nobody may read them any more.
func ForgetEpochs(ctx context.Context, meta metadata.Store, group core.GroupID, before uint64, now time.Time) error {
	for row, err := range metadata.All[metadata.DoneRecord](ctx, meta, metadata.Dones, group.String(), metadata.One) {
		if err == nil && row.Value.Epoch < before && !row.Value.Stays {
			err = meta.Remove(ctx, metadata.Dones, row.Key, later(now, row.Written), metadata.One)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// later is now, or the first instant after that of a row: what is written then wins, whatever clock wrote the row.
func later(now, written time.Time) time.Time {
	if least := written.Add(metadata.Tick); now.Before(least) {
		return least
	}
	return now
}
