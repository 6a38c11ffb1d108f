package outputhost

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// refresh reads the settings of loaded groups again, so that changes reach them within seconds, and looks after what moves slowly: ends of
// extents that nobody reads, checkpoints of other owners, groups that are not needed any more.
func (h *Host) refresh(ctx context.Context) {
	tick := time.NewTicker(h.cfg.RefreshEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		groups := h.groupList()
		err := h.refreshGroups(ctx, groups)
		if err == nil {
			err = h.lookForEnds(ctx, groups)
		}
		if err != nil && ctx.Err() == nil {
			h.log.Info("cannot refresh groups", "err", err)
		}
		for _, g := range groups {
			if !silent(err) { // else the metadata are away: not every group has to find that out
				if err = g.mergeOthers(ctx); err != nil && ctx.Err() == nil {
					h.log.Info("cannot look after a group's shares", "queue", g.queuePath, "group", g.name, "err", err)
				}
			}
			g.tellRoute(ctx)
			h.unload(g)
		}
	}
}

// refreshGroups reads the records of groups, all with a few calls.
func (h *Host) refreshGroups(ctx context.Context, groups []*group) error {
	keys := make([]metadata.Key, len(groups))
	for i, g := range groups {
		keys[i] = metadata.GroupKey(g.queue, g.name)
	}
	rows, err := metadata.GetRows(ctx, h.deps.Meta, metadata.Groups, keys, metadata.One)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "read the settings of %d groups: %w", len(groups), err)
	}
	byKey := make(map[metadata.Key]metadata.Row, len(rows))
	for _, row := range rows {
		byKey[row.Key] = row
	}
	for i, g := range groups {
		var record metadata.GroupRecord
		row, there := byKey[keys[i]]
		if there {
			if record, err = metadata.Decode[metadata.GroupRecord](metadata.Groups, row); err != nil {
				h.log.Warn("the settings of a group stay as they are", "queue", g.queuePath, "group", g.name, "err", err)
				continue
			}
		}
		g.apply(record, there && record.ID == g.id)
	}
	return nil
}

// apply makes changed settings count, and ends the consumers of a group that is gone or may not be consumed.
func (g *group) apply(record metadata.GroupRecord, there bool) {
	if !there {
		record.Spec.Status = core.StatusDeleted
	}
	g.mu.Lock()
	rewound := there && record.Epoch > g.mu.record.Epoch
	changed := record.Spec != g.mu.record.Spec || rewound
	if there && record.Epoch < g.mu.record.Epoch { // read before it was rewound
		changed = false
	} else if changed && there {
		g.mu.record = record
		g.mu.rules.Update(record.Spec, g.h.deps.Now())
	}
	var idle []*reader
	if rewound {
		idle = g.rewindLocked()
	}
	var end []*consumer
	if !record.Spec.Status.CanConsume() {
		end = append(end, g.mu.consumers...)
		g.mu.record.Spec.Status = record.Spec.Status
	}
	g.mu.Unlock()
	for _, c := range end {
		code := core.CodeDisabled
		if !there {
			code = core.CodeNotFound
		}
		c.fail(core.Errorf(code, "group %s of queue %s is %s", g.name, g.queuePath, record.Spec.Status))
	}
	for _, r := range idle {
		r.stop()
	}
	if rewound {
		g.h.log.Info("a group begins another epoch", "queue", g.queuePath, "group", g.name, "epoch", record.Epoch)
		g.h.relistSoon()
	}
	if changed {
		g.pump()
	}
}

// lookForEnds asks the metadata, now and then, whether extents that nobody reads and of which nothing is outstanding were sealed: what
// is consumed to its end must not stay loaded until a consumer comes.
func (h *Host) lookForEnds(ctx context.Context, groups []*group) error {
	now := h.deps.Now()
	var idle []*share
	var keys []metadata.Key
	for _, g := range groups {
		g.mu.Lock()
		if now.Sub(g.mu.looked) >= h.cfg.RelistEvery {
			g.mu.looked = now
			for _, s := range g.mu.shares {
				if s.reader == nil && !s.end && s.rules.Frontier() > 0 {
					idle, keys = append(idle, s), append(keys, metadata.SealKey(s.extent.ID))
				}
			}
		}
		g.mu.Unlock()
	}
	rows, err := metadata.GetRows(ctx, h.deps.Meta, metadata.Seals, keys, metadata.One)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "look up the ends of %d extents: %w", len(keys), err)
	}
	ends := make(map[metadata.Key]metadata.SealRecord, len(rows))
	for _, row := range rows {
		seal, err := metadata.Decode[metadata.SealRecord](metadata.Seals, row)
		if err != nil {
			h.log.Warn("the end of an extent cannot be read", "extent", row.Key.Row, "err", err)
			continue
		}
		ends[row.Key] = seal
	}
	for i, s := range idle {
		if seal, sealed := ends[keys[i]]; sealed {
			s.group.ended(s, seal)
		}
	}
	return nil
}

// reach brings a group up to an epoch that the controller knows of.
func (g *group) reach(ctx context.Context, epoch uint64) error {
	g.mu.Lock()
	known := g.mu.record.Epoch
	g.mu.Unlock()
	if known >= epoch {
		return nil
	}
	record, _, err := metadata.Read[metadata.GroupRecord](ctx, g.h.deps.Meta, metadata.Groups, metadata.GroupKey(g.queue, g.name), metadata.One)
	switch {
	case err != nil:
		return core.Errorf(core.CodeOf(err), "look up group %s: %w", g.name, err)
	case record.ID != g.id || record.Epoch < epoch:
		return core.Errorf(core.CodeStale, "group %s is read at epoch %d, it is at %d", g.name, record.Epoch, epoch)
	}
	g.apply(record, true)
	return nil
}

// rewindLocked begins another epoch: what was handed out in an earlier one is settled no more, and nothing of it is saved in this one. The
// shares, without what they knew, come with the next list. The readers are to be stopped by the caller.
func (g *group) rewindLocked() (readers []*reader) {
	for _, s := range g.mu.shares {
		if r := s.dropLocked(); r != nil {
			readers = append(readers, r)
		}
		g.forgetHandlesLocked(s)
	}
	for id, s := range g.mu.given {
		delete(g.mu.given, id)
		s.late = nil
		g.forgetHandlesLocked(s)
	}
	return readers
}

// relistSoon has the list of shares asked for again.
func (h *Host) relistSoon() {
	select {
	case h.relisting <- struct{}{}:
	default:
	}
}
