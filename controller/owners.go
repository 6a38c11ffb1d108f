package controller

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// rowsAtOnce bounds one write of assignments.
	rowsAtOnce = 256
	// removalsAtOnce bounds the removals of old rows that run side by side.
	removalsAtOnce = 8
	// moveWithin is for how long a share waits for an owner that is well, but does not confirm that it has given the share
	// away. Then the new owner resumes from the last checkpoint: what was handed out since may come twice.
	moveWithin = 5 * time.Second
	// lateMove is how old a decision is that another controller made, and whose move may still be under way: clocks of
	// controllers may differ by so much less moveWithin.
	lateMove = 2 * moveWithin
)

// giveOwners gives the pending shares of these queues to the output hosts that should have them; rows are written only
// where the owner changes, before anybody is told. It answers the decisions that were superseded.
func (h *Host) giveOwners(ctx context.Context, queues []core.QueueID) (superseded []catalog.Decision, err error) {
	outputs, runs := h.candidates("outputhost")
	if len(outputs) == 0 {
		return nil, nil
	}
	now := h.deps.now()
	var changes []change
	for _, queue := range queues {
		q := h.shares.queues[queue]
		if q == nil {
			continue
		}
		for _, g := range q.groups {
			changes = append(changes, h.giveChain(g, outputs, runs)...)
			for id, e := range g.pending {
				if e.Chain > 0 {
					continue
				}
				old := h.shares.Get(catalog.Share{Group: g.ID, Extent: id})
				owner, _ := placement.Owner(h.ownedBy(g, e), outputs)
				next := catalog.HostRun{Host: owner, Run: runs[owner]}
				if old.Owner == next || h.stays(old, now) {
					continue
				}
				changes = append(changes, h.decide(g, e, old, next))
			}
		}
	}
	well := func(o catalog.HostRun) bool { return h.hosts.fate(o.Host, o.Run, now) == alive }
	for len(changes) > 0 {
		n := wholeChains(changes, min(len(changes), rowsAtOnce))
		old, err := h.give(ctx, changes[:n], well, now)
		superseded = append(superseded, old...)
		if err != nil {
			return superseded, err
		}
		changes = changes[n:]
	}
	return superseded, nil
}

// give writes decisions and makes them count, as far as this controller is still responsible. It answers those that
// they supersede.
func (h *Host) give(ctx context.Context, changes []change, well func(catalog.HostRun) bool, now time.Time) (superseded []catalog.Decision, err error) {
	defer h.actions.begin()()
	others := func(c change) bool { return !h.duties.Responsible(c.Queue.ID) || !h.shares.looked(c.Queue) }
	if changes = slices.DeleteFunc(changes, others); len(changes) == 0 {
		return nil, nil
	}
	decisions, err := h.writeAssignments(ctx, changes)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "write %d assignments: %w", len(changes), err)
	}
	for _, old := range h.shares.SetAll(decisions, well, now.Add(moveWithin)) {
		if old.Counter > 0 {
			superseded = append(superseded, old)
		}
	}
	return superseded, nil
}

// ownedBy is by what a share gets its owner: those of a retry queue's extents have one, who knows two copies of a
// message for what they are.
func (h *Host) ownedBy(g *groupShares, e core.Extent) string {
	if known, _ := h.extents.Get(e.ID); ofRetryQueue(known) {
		return g.ID.String() + e.Queue.String()
	}
	return g.ID.String() + e.ID.String()
}

// nextCounter is that of the decision after old. Shares come back with a rewind: then it is above all of the epochs
// before, whose rows may still be on their way out.
func (g *groupShares) nextCounter(old catalog.Decision) uint64 {
	const perEpoch = 1 << 32
	return max(old.Counter, g.Epoch*perEpoch) + 1
}

// change is a new decision, and the one that it supersedes.
type change struct {
	metadata.AssignmentRecord
	old catalog.Decision
}

// decide gives a share to an owner, after the decision old.
func (h *Host) decide(g *groupShares, e core.Extent, old catalog.Decision, owner catalog.HostRun) change {
	self, from := h.deps.Members.Self(), h.shares.Holder(catalog.Share{Group: g.ID, Extent: e.ID})
	return change{metadata.AssignmentRecord{
		Group: g.ID, Queue: g.Queue, Name: g.Spec.Name, Extent: e,
		Counter: g.nextCounter(old), By: self.ID, ByRun: self.Run, Owner: owner.Host, Run: owner.Run, From: from.Host, FromRun: from.Run,
	}, old}
}

// writeAssignments writes the rows of changes, and answers the decisions that they record.
func (h *Host) writeAssignments(ctx context.Context, changes []change) ([]catalog.Decision, error) {
	at := h.shares.writeTime(h.deps.now())
	rows, decisions := make([]metadata.Row, len(changes)), make([]catalog.Decision, len(changes))
	for i, c := range changes {
		written := at
		if least := c.old.Written.Add(metadata.Tick); written.Before(least) {
			written = least
		}
		key := metadata.AssignmentKey(c.Group, c.Extent.ID, c.Precedence())
		var err error
		if rows[i], err = metadata.NewRow(metadata.Assignments, key, c.AssignmentRecord, written); err != nil {
			return nil, err
		}
		decisions[i] = catalog.DecisionOf(c.AssignmentRecord, written)
	}
	return decisions, h.deps.Meta.PutAll(ctx, metadata.Assignments, rows, metadata.One)
}

// forget removes the rows of decisions that count no more, beside the rounds. One that stays behind is found with its
// group. A removal is just above the row that is known: a share that was given again meanwhile may have a row of the
// same key.
func (h *Host) forget(ds []catalog.Decision) {
	if len(ds) == 0 {
		return
	}
	keys := make([]metadata.Key, len(ds))
	for i, d := range ds {
		keys[i] = metadata.AssignmentKey(d.Group, d.Extent, d.Precedence())
		h.shares.beginRemoval(keys[i])
	}
	h.tasks.Go(func(ctx context.Context) {
		var g errgroup.Group
		g.SetLimit(removalsAtOnce)
		for i, d := range ds {
			g.Go(func() error {
				defer h.shares.endRemoval(keys[i])
				err := h.deps.Meta.Remove(ctx, metadata.Assignments, keys[i], d.Written.Add(metadata.Tick), metadata.One)
				if err != nil && ctx.Err() == nil {
					h.log.Info("an old assignment stays behind", "extent", d.Extent, "group", d.Name, "err", err)
				}
				return nil
			})
		}
		g.Wait()
	})
}
