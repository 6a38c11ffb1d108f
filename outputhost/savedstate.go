package outputhost

import (
	"context"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// isDone reports whether the group has consumed the extent in this epoch.
func (h *Host) isDone(ctx context.Context, group core.GroupID, extent core.ExtentID, epoch uint64, read []metadata.Consistency) (done bool, err error) {
	for _, c := range read {
		if done, err = metadata.IsConsumed(ctx, h.deps.Meta, group, extent, epoch, c); err == nil {
			break
		}
	}
	if err != nil {
		return false, core.Errorf(core.CodeOf(err), "look whether extent %s is consumed: %w", extent, err)
	}
	return done, nil
}

// stays reports whether a rewind of the group leaves its progress in an extent as it is: the extent holds merged
// messages, or is of the retry queue. Its checkpoints count in every epoch, so nothing has to be carried over, however
// much is settled, or moves to the retry queue, while the rewind is under way.
func (g *group) stays(e core.Extent) bool { return e.Queue != g.queue }

// counts says whether a checkpoint of an extent, by its key, counts in an epoch.
func (g *group) counts(e core.Extent, epoch uint64) func(metadata.Key) bool {
	return func(checkpoint metadata.Key) bool {
		of, _, ok := metadata.CheckpointOf(checkpoint)
		return ok && (of == epoch || g.stays(e))
	}
}

// clockTolerance is how far apart the clocks of two hosts that are well may be.
const clockTolerance = time.Second

// resumed is what the checkpoints of a share say.
type resumed struct {
	state     dispatch.State
	others    map[metadata.Key]*other // those of other owners
	announced time.Time               // when the oldest one was written that tells of messages that leave for the dead letter queue
	covered   int64                   // until when other owners know what this host has saved, see dispatch.Version; 0: they know nothing of it
}

// savedState merges the checkpoints of all owners, that count; own is the key of this host's. From the version late on
// this host has only settled messages, as it had given the share away; 0: it had not.
func (h *Host) savedState(ctx context.Context, own metadata.Key, counts func(metadata.Key) bool, read []metadata.Consistency, late int64) (from resumed, err error) {
	var rows []metadata.Row
	for _, c := range read {
		if rows, err = h.checkpoints(ctx, own.Partition, c); err == nil {
			break
		}
	}
	if err != nil {
		return from, err
	}
	slices.SortStableFunc(rows, func(a, b metadata.Row) int { return b.Written.Compare(a.Written) }) // of two states of a policy the later one counts
	now := h.deps.Now()
	_, run, _ := metadata.CheckpointOf(own)
	saved := make([]dispatch.Saved, 0, len(rows))
	for _, row := range rows {
		if !counts(row.Key) {
			continue
		}
		s, err := dispatch.DecodeState(row.Value)
		if err != nil {
			return from, err
		}
		if s.Dies() && (from.announced.IsZero() || row.Written.Before(from.announced)) {
			from.announced = row.Written
		}
		if ahead := row.Written.Sub(now); ahead > clockTolerance { // deadlines of a clock that is ahead come that much too late
			s.Shift(-ahead)
		}
		one := dispatch.Saved{Version: versionOf(row), State: s}
		if one.Run == run {
			one.Since = late
		}
		saved = append(saved, one)
		if row.Key != own {
			if from.others == nil {
				from.others = make(map[metadata.Key]*other)
			}
			from.others[row.Key] = &other{value: string(row.Value), written: row.Written, since: now, known: true}
		}
	}
	from.state = dispatch.MergeSaved(saved)
	from.covered = dispatch.CoveredUntil(saved, run)
	return from, nil
}

// versionOf names a row of Checkpoints.
func versionOf(row metadata.Row) dispatch.Version {
	_, run, _ := metadata.CheckpointOf(row.Key)
	return dispatch.Version{Run: run, Written: row.Written.UnixMicro()}
}

// checkpoints are all rows of a share.
func (h *Host) checkpoints(ctx context.Context, partition string, c metadata.Consistency) (out []metadata.Row, err error) {
	for row, err := range metadata.Rows(ctx, h.deps.Meta, metadata.Checkpoints, partition, c) {
		if err != nil {
			return nil, err
		}
		out = append(out, row)
	}
	return out, nil
}
