// Package progress reads how far the groups of a queue are with its sealed extents, and clears that away.
package progress

import (
	"context"
	"fmt"
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

// consumedAt is when a group had consumed the extents that it has, in its present epoch; nothing for one that is half made.
func consumedAt(ctx context.Context, meta metadata.Store, g metadata.GroupRecord) (map[core.ExtentID]time.Time, error) {
	done := make(map[core.ExtentID]time.Time)
	if !g.Started {
		return done, nil
	}
	for d, err := range metadata.All[metadata.DoneRecord](ctx, meta, metadata.Dones, g.ID.String(), metadata.Serial) {
		if err != nil {
			return nil, err
		}
		id, err := core.ParseID(d.Key.Row)
		if err != nil {
			return nil, err
		}
		if d.Value.Epoch == g.Epoch {
			done[core.ExtentID{ID: id}] = d.Written
		}
	}
	return done, nil
}

// Consumed is when each group had consumed an extent, in its present epoch; zero for one that has not, or is half made.
func (p Progress) Consumed(id core.ExtentID) []time.Time {
	out := make([]time.Time, len(p))
	for i, g := range p {
		out[i] = g.done[id]
	}
	return out
}

// Unconsumed is how many messages of a sealed extent the group that is furthest behind has not consumed, or a little more: what it consumed
// out of order is not counted. Without a group it is all of them.
func (p Progress) Unconsumed(ctx context.Context, meta metadata.Store, row metadata.SealRecord) (uint64, error) {
	if len(p) == 0 {
		return uint64(row.L), nil
	}
	most := core.Seq(0)
	for _, g := range p {
		if _, done := g.done[row.Extent.ID]; done {
			continue
		}
		upTo, err := frontier(ctx, meta, g.GroupRecord, row.Extent.ID)
		if err != nil {
			return 0, err
		}
		most = max(most, row.L-min(upTo, row.L))
	}
	return uint64(most), nil
}

// frontier is the seq up to which a group has consumed an extent. A checkpoint that cannot be read counts as nothing consumed.
func frontier(ctx context.Context, meta metadata.Store, g metadata.GroupRecord, id core.ExtentID) (core.Seq, error) {
	rows, err := checkpoints(ctx, meta, g.ID, id)
	if err != nil {
		return 0, err
	}
	var state dispatch.State
	epoch := fmt.Sprintf("%020d/", g.Epoch)
	for _, row := range rows {
		if s, err := dispatch.DecodeState(row.Value); err == nil && len(row.Key.Row) > len(epoch) && row.Key.Row[:len(epoch)] == epoch {
			state.Merge(s)
		}
	}
	return state.Frontier(), nil
}

// checkpoints are all rows of a share.
func checkpoints(ctx context.Context, meta metadata.Store, group core.GroupID, id core.ExtentID) (out []metadata.Row, err error) {
	const page = 100
	for after := ""; ; after = out[len(out)-1].Key.Row {
		rows, more, err := meta.List(ctx, metadata.Checkpoints, metadata.CheckpointPartition(group, id), after, page, metadata.Quorum)
		if err != nil {
			return nil, err
		}
		if out = append(out, rows...); !more || len(rows) == 0 {
			return out, nil
		}
	}
}

// DoneFor is how long it stays known that a group is past an extent that was removed: lists of shares and tokens of before may still be about.
const DoneFor = 24 * time.Hour

// Forget removes the checkpoints of a retired extent, and has its done rows expire.
func Forget(ctx context.Context, meta metadata.Store, row metadata.SealRecord, now time.Time) error {
	id := row.Extent.ID
	for g, err := range metadata.All[metadata.GroupRecord](ctx, meta, metadata.Groups, row.Extent.Queue.String(), metadata.Quorum) {
		if err != nil {
			return err
		}
		rows, err := checkpoints(ctx, meta, g.Value.ID, id)
		if err != nil {
			return err
		}
		for _, c := range rows {
			if err := meta.Remove(ctx, metadata.Checkpoints, c.Key, later(now, c.Written), metadata.Quorum); err != nil {
				return err
			}
		}
		key, at := metadata.DoneKey(g.Value.ID, id), now
		switch old, err := meta.Get(ctx, metadata.Dones, key, metadata.Quorum); {
		case err == nil:
			at = later(at, old.Written)
		case core.CodeOf(err) != core.CodeNotFound:
			return err
		}
		done := metadata.DoneRecord{L: row.L, Epoch: g.Value.Epoch}
		if err := metadata.Write(ctx, meta, metadata.Dones, key, done, at, DoneFor, metadata.Quorum); err != nil {
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
