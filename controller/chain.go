package controller

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// chained reports whether the extent is to be one of a chain: of a CP queue, whose one open extent for all but timers
// is the head. It reads the row of the queue if it has to.
func (h *Host) chained(ctx context.Context, w *wish) (bool, error) {
	if w.kind == core.KindTimer {
		return false, nil
	}
	for _, known := range h.extents.Of(w.queue) {
		if known.Kind == w.kind {
			return known.Chain > 0, nil
		}
	}
	if err := h.readRow(ctx, w); err != nil {
		return false, err
	}
	return w.row.Spec.Consistency == core.CP, nil
}

// ensureHead answers the head of a CP queue's chain when it is the asker's and open, and else makes the next one for
// it, once the end of the old one is fixed:
//
//	open, of a live input host ──▶ CodeMoved, which names it
//	open, of a host that is gone; sealing ──seal──▶ sealed ──CAS of the head──▶ the asker's next extent ──▶ its rows
//
// The CAS makes the extent; its other rows are repaired from the head.
func (h *Host) ensureHead(ctx context.Context, w wish) (core.Extent, error) {
	old, err := h.headAndQueue(ctx, &w)
	if err != nil {
		return core.Extent{}, err
	}
	reads := h.loaded() != nil // then this controller gives out nothing before knowPlaces
	if old.Extent.Chain > 0 {
		if !reads {
			err = h.knowChain(ctx, old.Extent)
		}
		if err != nil {
			return core.Extent{}, err
		}
		state, err := h.adoptHead(ctx, old)
		if err != nil {
			return core.Extent{}, err
		}
		if state == core.ExtentOpen {
			if ours, err := h.headOf(old.Extent, w); ours || err != nil {
				return old.Extent, err
			}
		}
		if !state.HasEnd() {
			if _, err := h.seal(ctx, order{extent: old.Extent, reason: "chain moves on"}); err != nil {
				return core.Extent{}, core.Errorf(core.CodeUnavailable, "queue %s takes no messages until extent %s is sealed: %w", w.queue, old.Extent.ID, err)
			}
			w.row = nil // it may have changed meanwhile
		}
	}
	r, err := h.newExtent(ctx, w, old.Extent.Chain+1)
	if err != nil {
		return core.Extent{}, err
	}
	r.Before = old.Extent.ID
	now := h.deps.now()
	next := metadata.HeadRecord{Queue: w.queue, Extent: r.Extent, Before: r.Before, Changed: now, Attempt: core.NewID(now)}
	if err := metadata.MoveHead(ctx, h.deps.Meta, old, next); err != nil {
		code := core.CodeOf(err)
		if code == core.CodeConflict || code == core.CodeUnknown { // who asks again is told how it ended
			code = core.CodeUnavailable
		}
		return core.Extent{}, core.Errorf(code, "move the head of queue %s: %w", w.queue, err)
	}
	made, err := h.registerHead(ctx, w, r)
	if err == nil && !reads {
		h.knows(made)
	}
	return made, err
}

// headAndQueue reads the head of a chain, and beside it the row of the queue. If that one fails, it is read again when
// it is needed.
func (h *Host) headAndQueue(ctx context.Context, w *wish) (head metadata.HeadRecord, err error) {
	err = sideBySide(func() error { h.readRow(ctx, w); return nil }, func() error {
		return h.withMajority(ctx, func(ctx context.Context) (err error) {
			head, err = metadata.ReadHead(ctx, h.deps.Meta, w.queue, metadata.Quorum) // the move compares it
			return err
		})
	})
	if err != nil {
		return head, core.Errorf(core.CodeOf(err), "read the head of queue %s: %w", w.queue, err)
	}
	return head, nil
}

// knowChain takes in the extents of a chain up to one of them: other controllers may have made some. An extent that is
// given out while this controller does not know the places before is delivered before them.
func (h *Host) knowChain(ctx context.Context, last core.Extent) error {
	h.mu.Lock()
	known := h.mu.chains[last.Queue]
	h.mu.Unlock()
	if known >= last.Chain {
		return nil
	}
	var unknown []metadata.ExtentRecord
	for r, err := range metadata.ExtentRows(ctx, h.deps.Meta, last.Queue, metadata.Quorum) {
		if err == nil {
			err = h.outsideChain(ctx, r, last)
		}
		if err != nil {
			return core.Errorf(core.CodeOf(err), "list the extents of queue %s: %w", last.Queue, err)
		}
		if _, have := h.extents.Get(r.Value.ID); !have && r.Value.Chain > 0 && r.Value.Chain < last.Chain {
			unknown = append(unknown, r.Value)
		}
	}
	for some := range slices.Chunk(unknown, sealRowsAtOnce) {
		if err := h.takeInSealed(ctx, some); err != nil {
			return err
		}
	}
	if err := h.fillGaps(ctx, last.Queue); err != nil {
		return err
	}
	h.shares.touch(last.Queue)
	h.knows(last)
	return nil
}

// outsideChain fails for a create row that cannot be decoded if the extent may be a place before last. The seal row of
// each such place has its end before the head moves on. So an extent without a seal row stands outside: the extent is
// last, or has timers, or was lost with all of its rows, see fillGaps.
func (h *Host) outsideChain(ctx context.Context, r metadata.ExtentRow, last core.Extent) error {
	h.tellDamage(r)
	if _, have := h.extents.Get(r.Value.ID); r.Known() || have || r.Value.ID == last.ID {
		return nil
	}
	_, err := h.deps.Meta.Get(ctx, metadata.Seals, metadata.SealKey(r.Value.ID), metadata.Serial)
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
		return nil
	case err != nil:
		return err
	}
	return r.Damage
}

// fillGaps takes in places of a chain that this controller does not know since their create rows and hints were lost:
// the next place names each of them, and its seal row has the tuple. One without a seal row is left to the inventories
// of its stores.
func (h *Host) fillGaps(ctx context.Context, queue core.QueueID) error {
	for _, e := range h.extents.Of(queue) {
		for before := e.Before; !before.IsZero(); {
			if _, known := h.extents.Get(before); known {
				break
			}
			row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(before), metadata.Serial)
			if core.CodeOf(err) == core.CodeNotFound || err == nil && row.State == core.ExtentRetired {
				break
			}
			var r metadata.ExtentRecord
			if err == nil {
				r, err = h.registration(ctx, row.Extent)
			}
			if err == nil {
				err = h.writeExtent(ctx, r, h.deps.now())
			}
			if err != nil {
				return core.Errorf(core.CodeOf(err), "register extent %s, the place before %d: %w", before, e.Chain, err)
			}
			h.log.Warn("an extent in the middle of a chain, whose rows were lost, is registered again", "extent", before, "queue", queue)
			h.meet(catalog.Extent{ExtentRecord: r, State: core.ExtentOpen, Home: r.Home}.Took(row))
			before = r.Before
		}
	}
	return nil
}

// knowPlaces is knowChain up to the last place of a queue that this controller knows, and answers that place. It may
// have heard of that one from another controller, which could not tell it of those before.
func (h *Host) knowPlaces(ctx context.Context, queue core.QueueID) (last uint64, err error) {
	e, some := h.extents.LastOfChain(queue)
	if some {
		err = h.knowChain(ctx, e)
	}
	if h.cfg.Alone {
		return math.MaxUint64, err
	}
	return e.Chain, err
}

// takeInSealed takes in extents of a chain that have a successor, and so an end.
func (h *Host) takeInSealed(ctx context.Context, some []metadata.ExtentRecord) error {
	keys := make([]metadata.Key, len(some))
	records := make(map[metadata.Key]metadata.ExtentRecord, len(some))
	for i, r := range some {
		keys[i] = metadata.SealKey(r.ID)
		records[keys[i]] = r
	}
	rows, err := metadata.GetRows(ctx, h.deps.Meta, metadata.Seals, keys, metadata.Serial)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "read the ends of a chain: %w", err)
	}
	for _, row := range rows {
		sealed, err := metadata.Decode[metadata.SealRecord](metadata.Seals, row)
		if err != nil {
			return err
		}
		if sealed.State != core.ExtentRetired {
			r := records[row.Key]
			h.meet(catalog.Extent{ExtentRecord: r, State: core.ExtentOpen, Home: r.Home}.Took(sealed))
		}
	}
	return nil
}

// knows notes that the chain is known up to an extent.
func (h *Host) knows(last core.Extent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.chains[last.Queue] = max(h.mu.chains[last.Queue], last.Chain)
}

// headOf reports whether the open head is the asker's to use; false without an error: nobody will use it any more.
// CodeExists: the asker uses it already. An input host asks so before it ends the head, see its rollLocked: the answer
// shows that a majority of the metadata answers.
func (h *Host) headOf(head core.Extent, w wish) (bool, error) {
	if head.Input == w.input && head.InputRun == w.run {
		if slices.Contains(w.have, head.ID) {
			return false, core.Errorf(core.CodeExists, "input host %s has the head %s of the queue already", w.input, head.ID)
		}
		return h.writable(head, w.avoid), nil
	}
	switch h.hosts.fate(head.Input, head.InputRun, h.deps.now()) {
	case alive:
		return false, core.Errorf(core.CodeMoved, "input host %s takes the messages of the queue", head.Input)
	case unsure:
		return false, core.Errorf(core.CodeUnavailable, "it is not known yet whether input host %s, which takes the messages of the queue, is there", head.Input)
	}
	return false, nil
}

// adoptHead brings what is known of the head up to its seal row, and writes the rows of one whose maker did not come to
// that.
func (h *Host) adoptHead(ctx context.Context, head metadata.HeadRecord) (core.ExtentState, error) {
	id := head.Extent.ID
	row, err := h.sealRow(ctx, id)
	switch {
	case err == nil:
		return row.State, h.note(ctx, row)
	case core.CodeOf(err) != core.CodeNotFound:
		return "", core.Errorf(core.CodeOf(err), "look up the head %s: %w", id, err)
	}
	if _, known := h.extents.Get(id); known {
		return core.ExtentOpen, nil
	}
	r, err := h.registration(ctx, head.Extent)
	if err == nil {
		err = h.writeExtent(ctx, r, h.deps.now())
	}
	if err != nil {
		return "", core.Errorf(core.CodeOf(err), "register the head %s: %w", id, err)
	}
	h.extents.Put(catalog.Extent{ExtentRecord: r, State: core.ExtentOpen, Home: r.Home})
	h.shares.touch(head.Queue)
	return core.ExtentOpen, nil
}

// giveChain is giveOwners for the chain of a group of a CP queue: one host owns all of it, and it moves as a whole.
// Extents that were merged into the group are in no chain.
func (h *Host) giveChain(g *groupShares, outputs []placement.Candidate, runs map[core.HostID]core.RunID) (changes []change) {
	owner, _ := placement.Owner(g.ID.String(), outputs)
	now := h.deps.now()
	for id, e := range g.pending {
		if e.Chain == 0 {
			continue
		}
		old := h.shares.Get(catalog.Share{Group: g.ID, Extent: id})
		if h.stays(old, now) {
			return nil
		}
		if next := (catalog.HostRun{Host: owner, Run: runs[owner]}); old.Owner != next {
			changes = append(changes, h.decide(g, e, old, next))
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.Extent.Chain, b.Extent.Chain) })
	return changes
}

// wholeChains is how many of the changes, n or more, end with the end of a group of a CP queue.
func wholeChains(changes []change, n int) int {
	for n < len(changes) && changes[n].Extent.Chain > 0 && changes[n].Group == changes[n-1].Group {
		n++
	}
	return n
}
