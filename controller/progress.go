package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/columbamq/columba/controller/retention"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// progress is how far the groups of a queue are, as the metadata had it serially.
type progress []groupProgress

type groupProgress struct {
	metadata.GroupRecord
	done map[core.ExtentID]time.Time
}

// progress reads it. An error, or a list that is not whole, is no progress.
func (r *retainer) progress(ctx context.Context, queue core.QueueID) (out progress, err error) {
	names := make(map[string]struct{})
	for g, err := range metadata.All[metadata.GroupRecord](ctx, r.h.deps.Meta, metadata.Groups, queue.String(), metadata.Serial) {
		if err != nil {
			return nil, core.Errorf(core.CodeOf(err), "list its groups: %w", err)
		}
		names[g.Key.Row] = struct{}{}
		if g.Value.Spec.Status == core.StatusDeleted {
			continue
		}
		p := groupProgress{GroupRecord: g.Value}
		if p.done, err = r.h.consumedAt(ctx, g.Value); err != nil {
			return nil, core.Errorf(core.CodeOf(err), "list what group %s has consumed: %w", g.Key.Row, err)
		}
		out = append(out, p)
	}
	for name := range r.names[queue] {
		if _, listed := names[name]; !listed {
			return nil, core.Errorf(core.CodeUnavailable, "the list of its groups lacks %s, which was there before", name)
		}
	}
	r.names[queue] = names
	return out, nil
}

// consumedAt is when a group had consumed the extents that it has, in its present epoch; nothing for one that is half made.
func (h *Host) consumedAt(ctx context.Context, g metadata.GroupRecord) (map[core.ExtentID]time.Time, error) {
	done := make(map[core.ExtentID]time.Time)
	if !g.Started {
		return done, nil
	}
	for d, err := range metadata.All[metadata.DoneRecord](ctx, h.deps.Meta, metadata.Dones, g.ID.String(), metadata.Serial) {
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

// of an extent.
func (p progress) of(id core.ExtentID, ended time.Time) retention.Extent {
	e := retention.Extent{Ended: ended, Groups: make([]retention.Group, len(p))}
	for i, g := range p {
		e.Groups[i].Consumed = g.done[id]
	}
	return e
}

// unconsumed is how many messages of a sealed extent the group that is furthest behind has not consumed, or a little more: what it consumed
// out of order is not counted. Without a group it is all of them.
func (h *Host) unconsumed(ctx context.Context, row metadata.SealRecord, p progress) (uint64, error) {
	if len(p) == 0 {
		return uint64(row.L), nil
	}
	most := core.Seq(0)
	for _, g := range p {
		if _, done := g.done[row.Extent.ID]; done {
			continue
		}
		frontier, err := h.frontier(ctx, g.GroupRecord, row.Extent.ID)
		if err != nil {
			return 0, err
		}
		most = max(most, row.L-min(frontier, row.L))
	}
	return uint64(most), nil
}

// frontier is the seq up to which a group has consumed an extent. A checkpoint that cannot be read counts as nothing consumed.
func (h *Host) frontier(ctx context.Context, g metadata.GroupRecord, id core.ExtentID) (core.Seq, error) {
	rows, err := h.checkpoints(ctx, g.ID, id)
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
func (h *Host) checkpoints(ctx context.Context, group core.GroupID, id core.ExtentID) (out []metadata.Row, err error) {
	const page = 100
	for after := ""; ; after = out[len(out)-1].Key.Row {
		rows, more, err := h.deps.Meta.List(ctx, metadata.Checkpoints, metadata.CheckpointPartition(group, id), after, page, metadata.Quorum)
		if err != nil {
			return nil, err
		}
		if out = append(out, rows...); !more || len(rows) == 0 {
			return out, nil
		}
	}
}

// recordExpiry writes into the audit what retention takes from groups. Doing it again writes the same row.
func (h *Host) recordExpiry(ctx context.Context, row metadata.SealRecord, lost uint64) error {
	at := row.Attempt.Time()
	r := metadata.AuditRecord{
		Who: "controller " + string(h.deps.Members.Self().ID), What: fmt.Sprintf("retention: delete %d messages unconsumed", lost), Object: row.Extent.ID.String(), When: at, Result: "ok",
	}
	return metadata.Write(ctx, h.deps.Meta, metadata.Audit, metadata.AuditKey(at, row.Attempt), r, h.deps.now(), metadata.AuditTTL, metadata.Quorum)
}
