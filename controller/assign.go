package controller

import (
	"context"
	"slices"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// fewDones are looked up one by one; more are listed.
const fewDones = 32

// groupsWith are the groups that have not consumed an extent.
func (h *Host) groupsWith(extent core.ExtentID) (out []core.GroupID) {
	e, ok := h.extents.Get(extent)
	if !ok || h.shares.queues[e.Reader()] == nil {
		return nil
	}
	for id, g := range h.shares.queues[e.Reader()].groups {
		if _, ok := g.pending[extent]; ok {
			out = append(out, id)
		}
	}
	return out
}

// lookAt brings what is known of a queue's groups up to date; consumed: also what they have consumed. It answers the
// shares that nobody needs any more. A round looks at several queues side by side, at each of them once.
func (h *Host) lookAt(ctx context.Context, queue core.QueueID, consumed bool) (dropped []catalog.Decision, err error) {
	q := h.shares.of(queue)
	if !h.extents.Has(queue) {
		if q != nil {
			record, _, err := metadata.Read[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(queue), metadata.One)
			if err != nil && core.CodeOf(err) != core.CodeNotFound {
				return nil, err
			}
			for id, g := range q.groups {
				h.shares.ForgetEpoch(id)
				gone := h.dropShares(g, func(core.ExtentID) bool { return true })
				if record.Spec.Status != core.StatusDeleted { // else see below
					dropped = append(dropped, gone...)
				}
			}
			h.shares.setQueue(queue, nil)
		}
		h.backlogs.DropQueue(queue)
		return dropped, nil
	}
	c := metadata.One
	if q == nil { // nothing is known that would show that a row is an old one
		q, c = &queueShares{groups: make(map[core.GroupID]*groupShares), taken: h.deps.now()}, metadata.Quorum
		if err := h.learnQueue(ctx, queue); err != nil {
			return nil, err
		}
	}
	groups, err := h.groupsOf(ctx, queue, c)
	if err != nil {
		return nil, err
	}
	if err := h.confirmGroups(ctx, q, groups); err != nil {
		return nil, err
	}
	last, err := h.knowPlaces(ctx, queue)
	if err != nil {
		return nil, err
	}
	fresh := h.extents.TakeFresh(queue, last)
	assigned, news := h.assigned(fresh), len(fresh) > 0
	for id, g := range q.groups {
		if r, ok := groups[id]; !ok || r.Epoch != g.Epoch || assigned {
			news = true
			if !ok { // it is deleted: its assignments name the extents where retirement finds its other rows
				h.dropShares(g, func(core.ExtentID) bool { return true })
				h.shares.ForgetEpoch(id)
			}
			delete(q.groups, id) // read again below
			continue
		}
		for _, e := range fresh {
			if now, ok := h.extents.Get(e.ID); ok && now.Home.ReadBy(id) {
				g.pending[e.ID] = e
			}
		}
	}
	for id, r := range groups {
		if g := q.groups[id]; g != nil {
			g.GroupRecord = r
			continue
		}
		g, gone, err := h.loadGroup(ctx, r, last)
		if err != nil {
			return dropped, err // and what was fresh is read with the whole group
		}
		dropped = append(dropped, gone...)
		q.groups[id], news = g, true
		h.shares.SetEpoch(queue, id, r.Epoch)
	}
	h.shares.setQueue(queue, q)
	for _, g := range q.groups {
		gone, err := h.consumedOf(ctx, g, consumed)
		if err != nil {
			return dropped, err
		}
		dropped = append(dropped, h.dropShares(g, gone)...)
	}
	h.backlogs.SetGroups(queue, q.backlogs())
	q.rests(h.deps.now(), news || len(dropped) > 0 || h.mayDrop(q) || q.rewinds(), consumed)
	return dropped, nil
}

// mayDrop reports whether a group of a queue has yet to consume an extent with an end. Its owner says by a row that it
// has; without output hosts nobody does, see wakeBehind.
func (h *Host) mayDrop(q *queueShares) bool {
	consumes := h.hosts.any("outputhost")
	for _, g := range q.groups {
		for id := range g.pending {
			if e, live := h.extents.Get(id); !live || consumes && e.State.HasEnd() {
				return true
			}
		}
	}
	return false
}

// rewinds reports whether a group of a queue is being rewound. The controller that does so may die.
func (q *queueShares) rewinds() bool {
	for _, g := range q.groups {
		if g.Rewind != nil {
			return true
		}
	}
	return false
}

// assigned reports whether shares of new extents may have owners: those that minorities made. Then the groups are read
// again, with their assignments.
func (h *Host) assigned(fresh []core.Extent) bool {
	return slices.ContainsFunc(fresh, func(e core.Extent) bool {
		known, _ := h.extents.Get(e.ID)
		return known.Released
	})
}

// groupsOf a queue that may be given work.
func (h *Host) groupsOf(ctx context.Context, queue core.QueueID, c metadata.Consistency) (map[core.GroupID]metadata.GroupRecord, error) {
	out := make(map[core.GroupID]metadata.GroupRecord)
	for g, err := range metadata.All[metadata.GroupRecord](ctx, h.deps.Meta, metadata.Groups, queue.String(), c) {
		if err != nil {
			return nil, err
		}
		if !g.Value.Started || g.Value.Spec.Status == core.StatusDeleted {
			continue
		}
		out[g.Value.ID] = g.Value
		if g.Value.Rewind != nil {
			h.resumeRewind(g.Value)
		}
	}
	return out, nil
}

// confirmGroups looks up the known groups of a queue that a list does not have any more, or has in an older epoch: a
// list read at One may lack a row, or have one of before. The shares of such a group would be dropped.
func (h *Host) confirmGroups(ctx context.Context, q *queueShares, groups map[core.GroupID]metadata.GroupRecord) error {
	for id, g := range q.groups {
		if r, listed := groups[id]; listed && r.Epoch >= g.Epoch {
			continue
		}
		delete(groups, id)
		r, _, err := metadata.Read[metadata.GroupRecord](ctx, h.deps.Meta, metadata.Groups, metadata.GroupKey(g.Queue, g.Spec.Name), metadata.Serial)
		if err != nil && core.CodeOf(err) != core.CodeNotFound {
			return err
		}
		if err == nil && r.ID == id && r.Started && r.Spec.Status != core.StatusDeleted {
			groups[id] = r
		}
	}
	return nil
}

// loadGroup reads a group's decisions, so that counters go on where they were, and what it has not consumed, of a chain
// up to its last place that is known.
func (h *Host) loadGroup(ctx context.Context, r metadata.GroupRecord, last uint64) (g *groupShares, dropped []catalog.Decision, err error) {
	done, err := metadata.Consumed(ctx, h.deps.Meta, r.ID, r.Epoch, metadata.One)
	if err != nil {
		return nil, nil, err
	}
	g = &groupShares{GroupRecord: r, pending: make(map[core.ExtentID]core.Extent)}
	for _, e := range h.extents.ReadBy(r.Queue, r.ID) {
		if _, consumed := done[e.ID]; !consumed && e.State != core.ExtentRetired && (e.Queue != r.Queue || e.Chain <= last) {
			g.pending[e.ID] = e.Extent
		}
	}
	going := h.shares.removals()
	for a, err := range metadata.All[metadata.AssignmentRecord](ctx, h.deps.Meta, metadata.Assignments, r.ID.String(), metadata.Quorum) {
		if err != nil {
			return nil, nil, err
		}
		if _, goes := going[a.Key]; goes {
			continue
		}
		_, needed := g.pending[a.Value.Extent.ID]
		d := catalog.DecisionOf(a.Value, a.Written)
		order := d.Precedence().Compare(h.shares.Get(d.Share).Precedence())
		switch {
		case !needed:
			h.shares.Drop(d.Share)
			dropped = append(dropped, d)
		case order > 0:
			if old := h.takeOver(d, a.Value); old.Counter > 0 {
				dropped = append(dropped, old)
			}
		case order < 0:
			dropped = append(dropped, d) // its removal was lost, or another controller's decision counts
		}
	}
	return g, dropped, nil
}

// takeOver makes a decision of the metadata count, and answers the one it supersedes. The controller that made it may
// have ended in the middle of the move. A holder that is gone is not waited for.
func (h *Host) takeOver(d catalog.Decision, r metadata.AssignmentRecord) (old catalog.Decision) {
	now, self := h.deps.now(), h.deps.Members.Self()
	holder := catalog.HostRun{Host: r.From, Run: r.FromRun}
	own := d.By == self.ID && d.ByRun == self.Run
	if own || holder.Host == "" || holder == d.Owner || now.Sub(d.Written) >= lateMove || h.hosts.fate(holder.Host, holder.Run, now) == gone {
		return h.shares.Set(d)
	}
	return h.shares.TakeOver(d, holder, now.Add(moveWithin))
}

// consumedOf answers which of a group's pending extents it needs no more: those that are retired or moved to another
// home, and, when asked for, consumed.
func (h *Host) consumedOf(ctx context.Context, g *groupShares, look bool) (func(core.ExtentID) bool, error) {
	done := make(map[core.ExtentID]bool)
	var ended []core.ExtentID
	for id := range g.pending {
		e, live := h.extents.Get(id)
		switch {
		case !live, e.State == core.ExtentRetired, !e.Home.ReadBy(g.ID):
			done[id] = true
		case look && e.State.HasEnd():
			ended = append(ended, id)
		}
	}
	if len(ended) > fewDones {
		all, err := metadata.Consumed(ctx, h.deps.Meta, g.ID, g.Epoch, metadata.One)
		if err != nil {
			return nil, err
		}
		for id := range all {
			done[id] = true
		}
		return func(id core.ExtentID) bool { return done[id] }, nil
	}
	for _, id := range ended {
		consumed, err := metadata.IsConsumed(ctx, h.deps.Meta, g.ID, id, g.Epoch, metadata.One)
		if err != nil {
			return nil, err
		}
		done[id] = consumed
	}
	return func(id core.ExtentID) bool { return done[id] }, nil
}

// dropShares takes from a group what it needs no more.
func (h *Host) dropShares(g *groupShares, gone func(core.ExtentID) bool) []catalog.Decision {
	var out []catalog.Decision
	for id := range g.pending {
		if !gone(id) {
			continue
		}
		delete(g.pending, id)
		if old := h.shares.Drop(catalog.Share{Group: g.ID, Extent: id}); old.Counter > 0 {
			out = append(out, old)
		}
	}
	return out
}

// candidates are the output hosts that work can be given to: not those with a wrong clock, unless there are no others.
func (h *Host) candidates(role string) (out []placement.Candidate, runs map[core.HostID]core.RunID) {
	hosts := h.hosts.live(role)
	if right := slices.DeleteFunc(slices.Clone(hosts), func(m membership.Host) bool { return h.skewed.wrong(m.ID) }); len(right) > 0 {
		hosts = right
	}
	runs = make(map[core.HostID]core.RunID, len(hosts))
	for _, m := range hosts {
		out = append(out, placement.Candidate{ID: m.ID, Zone: m.Zone})
		runs[m.ID] = m.Run
	}
	return out, runs
}
