package outputhost

import (
	"context"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

// refresh reads the settings of loaded groups again, so that changes reach them within seconds, and looks after what
// moves slowly: ends of extents that nobody reads, checkpoints of other owners, groups and publishers that are not
// needed any more.
func (h *Host) refresh(ctx context.Context) {
	h.mover.CloseIdle()
	groups := h.groupList()
	for _, g := range groups {
		g.measure(h.deps.Now())
		g.endLinger(h.deps.Now())
		g.mendShares(h.deps.Now())
		g.lookAtAll()
	}
	err := h.refreshGroups(ctx, groups)
	if err == nil {
		err = h.lookForEnds(ctx, groups)
	}
	if err == nil {
		err = h.followAllCancels(ctx, groups)
	}
	if err == nil {
		h.refreshes.Succeeded()
	} else if ctx.Err() == nil && h.refreshes.Failed(h.deps.Now()) {
		h.log.Info("cannot read the settings of groups; the host tries again in the next round", "err", err)
	}
	for _, g := range groups {
		if !silent(err) { // else the metadata are away: not every group has to find that out
			if err = g.mergeOthers(ctx); err != nil && ctx.Err() == nil {
				h.log.Info("cannot merge checkpoints of other owners; the host tries again in the next round", "queue", g.queuePath, "group", g.name, "err", err)
			}
		}
		g.tellRoute(ctx)
		h.unload(g)
	}
}

// refreshGroups reads the records of groups, and those of their queues, all with a few calls. A group whose row is
// missing in one copy of the metadata is looked up again at Quorum; without a majority it stays as it is.
func (h *Host) refreshGroups(ctx context.Context, groups []*group) error {
	run := membership.MetadataRun(h.deps.Members) // before the rows are read: see metadata.Reading
	rows, err := h.groupRows(ctx, groups, metadata.One)
	if err != nil {
		return err
	}
	sources := make([]metadata.Key, 0, len(groups))
	listed := make(map[core.QueueID]bool, len(groups))
	for _, g := range groups {
		if !listed[g.queue] {
			listed[g.queue] = true
			sources = append(sources, metadata.QueueKey(g.queue))
		}
	}
	queues, err := h.rowsByKey(ctx, metadata.Queues, sources, metadata.One)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "read the status of %d queues: %w", len(sources), err)
	}
	for _, g := range groups {
		if row, there := queues[metadata.QueueKey(g.queue)]; there {
			g.noteSource(row, run)
		}
	}
	missing := h.applyRows(groups, rows, run)
	if len(missing) == 0 {
		return nil
	}
	rows, err = h.groupRows(ctx, missing, metadata.Quorum)
	if err != nil {
		if ctx.Err() == nil {
			h.log.Info("cannot look up whether groups were deleted; they keep their earlier settings until the next round", "groups", len(missing), "err", err)
		}
		return nil
	}
	for _, g := range h.applyRows(missing, rows, run) {
		g.apply(metadata.GroupRecord{}, metadata.Reading{}, false)
	}
	return nil
}

// groupRows reads the rows of groups.
func (h *Host) groupRows(ctx context.Context, groups []*group, c metadata.Consistency) (map[metadata.Key]metadata.Row, error) {
	keys := make([]metadata.Key, len(groups))
	for i, g := range groups {
		keys[i] = metadata.GroupKey(g.queue, g.name)
	}
	rows, err := h.rowsByKey(ctx, metadata.Groups, keys, c)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "read the settings of %d groups: %w", len(groups), err)
	}
	return rows, nil
}

// applyRows has the groups take over their rows, and answers the groups without one: it is missing, or that of another
// group of the name.
func (h *Host) applyRows(groups []*group, rows map[metadata.Key]metadata.Row, run core.RunID) (missing []*group) {
	for _, g := range groups {
		row, there := rows[metadata.GroupKey(g.queue, g.name)]
		if !there {
			missing = append(missing, g)
			continue
		}
		record, err := g.decode(row, run)
		switch {
		case err != nil:
			h.log.Warn("cannot decode the settings of a group; the group keeps its earlier settings", "queue", g.queuePath, "group", g.name, "err", err)
		case record.ID != g.id:
			missing = append(missing, g)
		default:
			g.apply(record, metadata.Reading{Run: run, Version: row.Version}, true)
		}
	}
	return missing
}

// decode is the record of the group's row: the one it has, unless the row has changed, or the group was gone in
// between.
func (g *group) decode(row metadata.Row, run core.RunID) (metadata.GroupRecord, error) {
	g.mu.Lock()
	record, at := g.mu.record, g.mu.recordAt
	g.mu.Unlock()
	if at == (metadata.Reading{Run: run, Version: row.Version}) && record.Spec.Status != core.StatusDeleted {
		return record, nil
	}
	return metadata.Decode[metadata.GroupRecord](metadata.Groups, row)
}

// rowsByKey reads rows of one table; those that are not there are left out.
func (h *Host) rowsByKey(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) (map[metadata.Key]metadata.Row, error) {
	rows, err := metadata.GetRows(ctx, h.deps.Meta, t, keys, c)
	if err != nil {
		return nil, err
	}
	byKey := make(map[metadata.Key]metadata.Row, len(rows))
	for _, row := range rows {
		byKey[row.Key] = row
	}
	return byKey, nil
}

// noteSource takes over the status of the group's queue, unless the row is the one it has or an older one.
func (g *group) noteSource(row metadata.Row, run core.RunID) {
	at := metadata.Reading{Run: run, Version: row.Version}
	g.mu.Lock()
	known := at == g.mu.sourceAt || at.Before(g.mu.sourceAt)
	g.mu.Unlock()
	if known {
		return
	}
	queue, err := metadata.Decode[metadata.QueueRecord](metadata.Queues, row)
	if err != nil {
		g.h.log.Warn("cannot decode the record of a queue; its groups keep the earlier status", "queue", g.queuePath, "err", err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !at.Before(g.mu.sourceAt) {
		g.mu.source, g.mu.sourceAt = queue.Spec.Status, at
	}
}

// apply makes changed settings count, of a version of their row that is not older than what is known. Consumers of a
// group that may not be consumed for now are told, and stay: they may settle what they hold, and are delivered to again
// when it may. Those of a group that is gone are ended.
func (g *group) apply(record metadata.GroupRecord, at metadata.Reading, there bool) {
	if !there {
		record.Spec.Status = core.StatusDeleted
	}
	g.mu.Lock()
	switch {
	case there && at.Before(g.mu.recordAt): // read before what is known
		record = g.mu.record
	case there:
		g.mu.recordAt = at
	}
	record.Spec = record.Spec.Interned()
	rewound := there && record.Epoch != g.mu.record.Epoch // it falls with older metadata only
	relocked := there && record.Spec.LockTimeout != g.mu.record.Spec.LockTimeout
	changed, before := record.Spec != g.mu.record.Spec || rewound, g.mu.record.Epoch
	if changed && there {
		g.mu.record = record
		g.mu.rules.Update(record.Spec, g.h.deps.Now())
	}
	g.mu.record.Spec.Status = record.Spec.Status
	was, paused := g.mu.paused, g.statusLocked()
	g.mu.paused = paused
	consumers := slices.Clone(g.mu.consumers)
	var idle []*reader
	if rewound {
		idle = g.rewindLocked(before)
	}
	if paused != nil && was == nil {
		idle = append(idle, g.readersLocked()...)
		g.mu.pulls.wakeAll() // they are refused
	}
	g.mu.Unlock()
	stopAll(idle)
	if rewound {
		g.h.log.Info("a seek began another epoch of the group", "queue", g.queuePath, "group", g.name, "epoch", record.Epoch)
		poke(g.h.relisting)
	}
	for _, c := range consumers {
		switch {
		case core.CodeOf(paused) == core.CodeNotFound:
			c.fail(paused)
		case (was == nil) != (paused == nil):
			c.tellPause(paused)
		}
		if relocked && core.CodeOf(paused) != core.CodeNotFound {
			c.greet(g)
		}
	}
	if changed || paused == nil && was != nil {
		g.pump()
	}
}

// tellPause says why nothing is delivered from now on, or with nil that it is again.
func (c *consumer) tellPause(why error) {
	m := &pb.Throttled{}
	if why != nil {
		m.Reason = convert.ErrorToProto(why)
	}
	body, err := proto.Marshal(m)
	if err == nil {
		c.s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeThrottled, c.stream, body))
	}
}

// lookForEnds asks the metadata, now and then, whether extents that nobody reads and of which nothing is outstanding
// were sealed: what is consumed to its end must not stay loaded until a consumer comes.
func (h *Host) lookForEnds(ctx context.Context, groups []*group) error {
	now := h.deps.Now()
	var idle []*share
	var keys []metadata.Key
	for _, g := range groups {
		g.mu.Lock()
		if h.elapsed(now)-g.mu.looked >= h.cfg.RelistEvery {
			g.mu.looked = h.elapsed(now)
			for _, s := range g.mu.shares {
				if s.reader == nil && !s.end && s.rules.Frontier() > 0 {
					idle, keys = append(idle, s), append(keys, metadata.SealKey(s.extent.ID))
				}
			}
		}
		g.mu.Unlock()
	}
	ends, err := h.ends(ctx, keys)
	if err != nil {
		return err
	}
	for i, s := range idle {
		if seal, sealed := ends[keys[i]]; sealed {
			s.group.ended(s, seal)
		}
	}
	return nil
}

// ends are the seal rows of extents; those that nobody has sealed have none.
func (h *Host) ends(ctx context.Context, keys []metadata.Key) (map[metadata.Key]metadata.SealRecord, error) {
	rows, err := h.rowsByKey(ctx, metadata.Seals, keys, metadata.One)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "look up the ends of %d extents: %w", len(keys), err)
	}
	ends := make(map[metadata.Key]metadata.SealRecord, len(rows))
	for _, row := range rows {
		seal, err := metadata.Decode[metadata.SealRecord](metadata.Seals, row)
		if err != nil {
			h.log.Warn("cannot decode the seal row of an extent; its end stays unknown", "extent", row.Key.Row, "err", err)
			continue
		}
		ends[row.Key] = seal
	}
	return ends, nil
}

// mendShares has the shares rebuilt that a watchdog finds broken: whatever the defect, the group must not stand still
// for ever.
func (g *group) mendShares(now time.Time) {
	saveFails, _ := g.h.saver.failing()
	type mended struct {
		extent core.ExtentID
		cause  string
		reader *reader
	}
	var all []mended
	g.mu.Lock()
	at, due := g.mu.rules.NextDeadline()
	if g.mu.pumping || due && !at.After(now) || !g.mayGive(now) { // it is about to be looked at, or stands still on purpose
		g.mu.Unlock()
		return
	}
	bytes := 0
	if state, _ := g.mu.rules.Breaker(); g.wantedLocked() && !saveFails && state == dispatch.BreakerClosed {
		bytes = g.freeLocked(now)
	}
	for id, s := range g.mu.shares {
		if cause := s.rules.Watched(&s.watch, bytes, now); cause != "" {
			g.mu.rules.Rebuild(s.rules, now)
			all = append(all, mended{id, cause, s.reader})
			s.reader = nil
			g.touchLocked(s)
		}
	}
	g.mu.Unlock()
	for _, m := range all {
		m.reader.stop()
		g.h.metrics.mended.Inc()
		g.h.log.Warn("the state of a share was damaged by a bug, and the host rebuilt it; no message is lost. Report this log line", "queue", g.queuePath, "group", g.name, "extent", m.extent, "why", m.cause)
	}
	if len(all) > 0 {
		g.pump()
	}
}

// freeLocked is how many bytes of credit one consumer or pull has for one message, at most.
func (g *group) freeLocked(now time.Time) (bytes int) {
	if g.mu.pulls.number() > 0 && !g.mu.rules.Throttled(pullSession) && g.mayPullLocked() > 0 {
		bytes = maxPullBytes
	}
	most := g.mostHeldLocked(now)
	for _, c := range g.mu.consumers {
		switch {
		case c.credit.messages <= 0 || c.credit.bytes <= 0 || !g.mu.rules.Admits(c.id) || g.mayHoldLocked(c, most) == 0:
		case c.held == 0:
			bytes = math.MaxInt
		default:
			bytes = max(bytes, c.credit.bytes)
		}
	}
	return bytes
}

// reach brings a group up to an epoch that the controller knows of.
func (g *group) reach(ctx context.Context, epoch uint64) error {
	g.mu.Lock()
	known := g.mu.record.Epoch
	g.mu.Unlock()
	if known >= epoch {
		return nil
	}
	is := func(r metadata.GroupRecord) bool { return r.ID == g.id && r.Epoch >= epoch }
	record, at, err := g.h.readGroup(ctx, g.queue, g.name, is)
	switch {
	case err != nil:
		return err
	case !is(record):
		return core.Errorf(core.CodeStale, "group %s is read at epoch %d, it is at %d", g.name, record.Epoch, epoch)
	}
	g.apply(record, at, true)
	return nil
}

// rewindLocked begins another epoch: what was handed out in the one before, from, is settled no more, and nothing of it
// is saved in this one. The shares, without what they knew, come with the next list. The readers are to be stopped by
// the caller. Shares of merged messages and of the retry queue go on.
func (g *group) rewindLocked(from uint64) (readers []*reader) {
	for id, s := range g.mu.shares {
		if g.stays(s.extent) {
			if s.others == nil {
				s.others = make(map[metadata.Key]*other)
			}
			run := g.h.deps.Members.Self().Run
			s.others[metadata.CheckpointKey(g.id, id, from, run)] = &other{} // removed when the one of this epoch has all of it
			s.rules.Cover(dispatch.Version{Run: run, Written: g.h.saver.stamp(g.h.deps.Now()).UnixMicro()})
			continue
		}
		readers = append(readers, s.dropLocked())
		g.forgetHandlesLocked(s, forgottenShare)
	}
	for id, s := range g.mu.given {
		if g.stays(s.extent) {
			g.changeLateLocked(s)
			continue
		}
		delete(g.mu.given, id)
		s.late = nil
		g.forgetHandlesLocked(s, forgottenShare)
	}
	return readers
}
