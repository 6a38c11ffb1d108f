package controller

import (
	"context"
	"slices"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

const (
	// lookEvery and idleEvery are how often a queue is looked at that nobody touched: one with work, one without.
	lookEvery = 10 * time.Second
	idleEvery = time.Minute
	// fewDones are looked up one by one; more are listed.
	fewDones = 32
)

// assignTouched looks at the queues that were touched since. As the others do, it reports whether all that it decided is written.
func (h *Host) assignTouched(ctx context.Context) bool {
	if !h.shares.isComplete() {
		return h.assignAll(ctx)
	}
	touched := h.shares.takeTouched()
	return h.round(ctx, touched, touched, false)
}

// assignDue looks at a part of the queues, so that each has its turn.
func (h *Host) assignDue(ctx context.Context) bool {
	if !h.shares.isComplete() {
		return h.assignAll(ctx)
	}
	now := h.deps.now()
	due := h.shares.takeTouched()
	for id, q := range h.shares.queues {
		every := idleEvery
		if q.busy() {
			every = lookEvery
		}
		if now.Sub(q.looked) >= every {
			due = append(due, id)
		}
	}
	due = append(due, h.unseen()...)
	return h.round(ctx, due, due, true)
}

// assignAll gives all shares their owners again: hosts came or went. It does not read queues again that it knows.
func (h *Host) assignAll(ctx context.Context) bool {
	look := append(h.shares.takeTouched(), h.unseen()...)
	return h.round(ctx, look, h.extents.Queues(), false)
}

// unseen are the queues with extents that no round has looked at yet.
func (h *Host) unseen() (out []core.QueueID) {
	for _, id := range h.extents.Queues() {
		if h.shares.queues[id] == nil {
			out = append(out, id)
		}
	}
	return out
}

func (q *queueShares) busy() bool {
	for _, g := range q.groups {
		if len(g.pending) > 0 {
			return true
		}
	}
	return false
}

// round looks at some queues, gives the shares of some owners, and tells the output hosts. written is false when shares are without an owner
// since the metadata did not take it.
func (h *Host) round(ctx context.Context, look, give []core.QueueID, consumed bool) (written bool) {
	var dropped []catalog.Decision
	failed := false
	for _, queue := range look {
		if ctx.Err() != nil {
			return false
		}
		gone, err := h.lookAt(ctx, queue, consumed)
		dropped = append(dropped, gone...)
		if err != nil {
			h.log.Warn("shares of a queue stay as they are", "queue", queue, "err", err)
			h.shares.later(queue)
			// Otherwise this controller would take shares that it does not know yet from their owner. A queue that
			// cannot be read is the exception.
			failed = failed || h.shares.queues[queue] == nil && core.CodeOf(err) != core.CodeCorrupt
		}
	}
	superseded, err := h.giveOwners(ctx, give)
	if err != nil {
		failed = true
		if ctx.Err() == nil {
			h.log.Warn("cannot assign shares", "err", err)
		}
	}
	if !failed {
		h.shares.setComplete()
	}
	for _, extent := range h.shares.takeReheld() {
		h.shares.Touch(extent, h.groupsWith(extent))
	}
	h.shares.endRound()
	now := h.deps.now()
	h.shares.EndMoves(now)
	h.shares.Forget(func(o catalog.HostRun) bool { return h.hosts.fate(o.Host, o.Run, now) == gone })
	h.metrics.shares.Set(float64(h.shares.Count()))
	h.push()
	h.forget(append(dropped, superseded...))
	return err == nil
}

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

// lookAt brings what is known of a queue's groups up to date; consumed: also what they have consumed. It answers the shares that nobody
// needs any more.
func (h *Host) lookAt(ctx context.Context, queue core.QueueID, consumed bool) (dropped []catalog.Decision, err error) {
	q := h.shares.queues[queue]
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
			delete(h.shares.queues, queue)
		}
		h.backlogs.DropQueue(queue)
		return dropped, nil
	}
	c := metadata.One
	if q == nil { // nothing is known that would show that a row is an old one
		q, c = &queueShares{groups: make(map[core.GroupID]*groupShares)}, metadata.Quorum
	}
	groups, err := h.groupsOf(ctx, queue, c)
	if err != nil {
		return nil, err
	}
	if err := h.confirmGroups(ctx, q, groups); err != nil {
		return nil, err
	}
	fresh := h.extents.TakeFresh(queue)
	for id, g := range q.groups {
		if r, ok := groups[id]; !ok || r.Epoch != g.Epoch {
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
		g, gone, err := h.loadGroup(ctx, r)
		if err != nil {
			return dropped, err // and what was fresh is read with the whole group
		}
		dropped = append(dropped, gone...)
		q.groups[id] = g
		h.shares.SetEpoch(queue, id, r.Epoch)
	}
	h.shares.queues[queue] = q
	q.looked = h.deps.now()
	for _, g := range q.groups {
		gone, err := h.consumedOf(ctx, g, consumed)
		if err != nil {
			return dropped, err
		}
		dropped = append(dropped, h.dropShares(g, gone)...)
	}
	h.backlogs.SetGroups(queue, q.backlogs())
	return dropped, nil
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

// confirmGroups looks up the known groups of a queue that a list does not have any more, or has in an older epoch: a list
// read at One may lack a row, or have one of before. The shares of such a group would be dropped.
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

// loadGroup reads a group's decisions, so that counters go on where they were, and what it has not consumed.
func (h *Host) loadGroup(ctx context.Context, r metadata.GroupRecord) (g *groupShares, dropped []catalog.Decision, err error) {
	done, err := metadata.Consumed(ctx, h.deps.Meta, r.ID, r.Epoch, metadata.One)
	if err != nil {
		return nil, nil, err
	}
	g = &groupShares{GroupRecord: r, pending: make(map[core.ExtentID]core.Extent)}
	for _, e := range h.extents.ReadBy(r.Queue, r.ID) {
		if _, consumed := done[e.ID]; !consumed && e.State != core.ExtentRetired {
			g.pending[e.ID] = e.Extent
		}
	}
	for a, err := range metadata.All[metadata.AssignmentRecord](ctx, h.deps.Meta, metadata.Assignments, r.ID.String(), metadata.Quorum) {
		if err != nil {
			return nil, nil, err
		}
		_, needed := g.pending[a.Value.Extent.ID]
		d := catalog.DecisionOf(a.Value)
		order := d.Precedence().Compare(h.shares.Get(d.Share).Precedence())
		switch {
		case !needed:
			h.shares.Drop(d.Share)
			dropped = append(dropped, d)
		case order > 0:
			if old := h.shares.Set(d); old.Counter > 0 {
				dropped = append(dropped, old)
			}
		case order < 0:
			dropped = append(dropped, d) // its removal was lost, or another controller's decision counts
		}
	}
	return g, dropped, nil
}

// consumedOf answers which of a group's pending extents it needs no more: those that are retired or moved to another home, and, when asked
// for, consumed.
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

// Pauses before all shares are given again when the metadata did not take them: from the first, doubled up to the other.
const (
	minRepeat = 50 * time.Millisecond
	maxRepeat = 2 * time.Second
)

// repeat has something done again after a pause that grows while it fails. One goroutine uses it.
type repeat struct {
	timer *time.Timer
	armed bool
	pause time.Duration
}

func newRepeat() *repeat {
	r := &repeat{timer: time.NewTimer(maxRepeat)}
	r.timer.Stop()
	return r
}

// unless done, the timer fires after a pause.
func (r *repeat) unless(done bool) {
	switch {
	case done && !r.armed:
		r.pause = 0
	case !done && !r.armed:
		r.pause = min(max(2*r.pause, minRepeat), maxRepeat)
		r.timer.Reset(r.pause)
		r.armed = true
	}
}
