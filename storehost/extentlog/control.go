package extentlog

import (
	"errors"
	"time"

	"github.com/columbamq/columba/core"
)

// exciseAbove is the size from which a removed extent's range is cut out of the tables at once. Smaller ones are cut
// out together later (debris): cutting costs a sync of the manifest. A damaged extent is always cut out: a repaired
// copy would be read through the damage below it.
const exciseAbove = 64 << 10

// doPatience is how long a step waits for its answer: longer than any call, so that a disk which is only slow fails
// nothing.
const doPatience = 30 * time.Second

// errUnanswered is the cause of the error of a step that is still under way: what its closure writes must not be read.
var errUnanswered = errors.New("the disk did not answer in time")

// do sends a step through the queue and waits for its answer. On a disk that hangs it does not begin to wait, so that
// callers, who try again, do not pile up. CodeDeadline, with errUnanswered: it may or may not be done, and the step may
// still run.
func (e *Engine) do(r request) error {
	answer, err := e.begin(r)
	if err != nil {
		return err
	}
	if err = await(answer); errors.Is(err, errSwept) {
		e.debris.refused.Add(1) // the next sweep waits
		defer e.debris.refused.Add(-1)
		if e.awaitSweep() {
			return e.do(r)
		}
	}
	if e.awaitMove(err) {
		return e.do(r)
	}
	return err
}

// begin sends a step through the queue, on a disk that does not hang.
func (e *Engine) begin(r request) (<-chan error, error) {
	if hangs := e.pulse.hangs(time.Now()); hangs >= HangsAt && e.refusing() == nil {
		return nil, core.Errorf(core.CodeUnavailable, "the store's disk has not answered for %s; try again, or use another store", hangs.Round(time.Second))
	}
	answer := make(chan error, 1)
	r.answer = func(err error) { answer <- err }
	switch e.queue.offer(r) {
	case offerFull:
		return nil, errFull()
	case offerClosed:
		return nil, e.ended()
	}
	return answer, nil
}

// await waits for the answer for doPatience at most.
func await(answer <-chan error) error {
	timer := time.NewTimer(doPatience)
	defer timer.Stop()
	select {
	case err := <-answer:
		return err
	case <-timer.C:
		return core.Errorf(core.CodeDeadline, "the store's disk did not answer within %s: %w", doPatience, errUnanswered)
	}
}

// stageRow writes the extent's row as it is in next.
func (e *Engine) stageRow(g *group, x *extent) error {
	value, err := x.next.row.encode()
	if err != nil {
		return err
	}
	if err := g.batch.Set(extentKey(prefixRow, x.id), value, nil); err != nil {
		return e.fail(err)
	}
	g.touch(x)
	return nil
}

// Open implements Log.
func (e *Engine) Open(ext core.Extent) error {
	if err := e.admitOpen(); err != nil {
		return err
	}
	return e.do(request{control: true, stage: func(g *group) error {
		if e.extent(ext.ID) == nil {
			if err := e.graveyard.admitsOpening(ext.ID); err != nil {
				return err
			}
		}
		x, err := e.making(ext.ID)
		if err != nil {
			return err
		}
		switch {
		case x.next.Fenced:
			return core.Errorf(core.CodeFenced, "extent %s is fenced", ext.ID)
		case x.next.Opened:
			return core.Errorf(core.CodeExists, "extent %s was opened before; an extent has one writer in its life", ext.ID)
		}
		x.next.Extent, x.next.Opened, x.next.Header = ext, true, e.identity
		return e.stageRow(g, x)
	}})
}

// Fence implements Log.
func (e *Engine) Fence(ext core.Extent, version uint64) (State, error) {
	var after State
	err := e.do(request{control: true, fences: ext.ID, stage: func(g *group) error {
		if err := e.graveyard.admitsReturn(ext.ID, version); err != nil {
			return err
		}
		x, err := e.making(ext.ID)
		if err != nil {
			return err
		}
		if x.next.Extent.ID.IsZero() {
			if x.next.Extent = ext; e.graveyard.suspects(ext, e.identity) {
				x.next.suspect()
			}
		}
		x.next.committed = max(x.next.committed, x.committed())
		already := x.next.Fenced
		x.next.Fenced, x.next.Version = true, max(x.next.Version, e.graveyard.graves[ext.ID].version)
		after = x.next.state()
		after.Damaged = after.Damaged || x.damaged()
		if already {
			return nil
		}
		if err := e.stageExhumation(g, ext.ID); err != nil {
			return err
		}
		return e.stageRow(g, x)
	}})
	if err != nil {
		return State{}, err
	}
	return after, nil
}

// Seal implements Log. L is kept even when the replica is shorter, so that no later copy goes beyond it. The version is
// kept even when the replica cannot take the end: a removal that this version decides must name it.
func (e *Engine) Seal(id core.ExtentID, l core.Seq, checksum uint32, version uint64) error {
	var last core.Seq
	var refused error
	err := e.do(request{control: true, stage: func(g *group) error {
		x := e.extent(id)
		switch {
		case x == nil || x.next.Extent.ID.IsZero():
			return notFound(id)
		case !x.next.Fenced:
			return core.Errorf(core.CodeConflict, "extent %s is not fenced; fence it before sealing", id)
		case x.next.Sealed && (x.next.L != l || x.next.SealSum != checksum):
			refused = core.Errorf(core.CodeConflict, "extent %s is sealed at %d, not at %d with that checksum", id, x.next.L, l)
		case l < max(x.next.committed, x.committed()):
			refused = core.Errorf(core.CodeConflict, "extent %s: last seq %d is below %d, which is known to be committed", id, l, x.committed())
		case x.damaged():
			refused = damaged(id)
		}
		if refused != nil {
			if version <= x.next.Version {
				return refused
			}
			x.next.Version = version
			return e.stageRow(g, x)
		}
		if last = x.next.last; x.next.Sealed && version <= x.next.Version {
			return nil
		}
		if !x.next.Sealed {
			if err := e.stageTruncate(g, x, l, checksum); err != nil {
				return err
			}
		}
		x.next.Sealed, x.next.L, x.next.SealSum, x.next.Version = true, l, checksum, max(x.next.Version, version)
		return e.stageRow(g, x)
	}})
	if errors.Is(err, errUnanswered) {
		return err
	}
	if err == nil && refused != nil {
		return refused
	}
	if err == nil && last < l {
		return core.Errorf(core.CodeIncomplete, "extent %s ends at %d here; copy up to %d", id, last, l)
	}
	return err
}

// stageTruncate verifies the checksum at l and drops what is beyond. A shorter replica is left as it is. It reads the
// extent's batches, all of which are applied: the round's data is staged behind its controls.
func (e *Engine) stageTruncate(g *group, x *extent, l core.Seq, checksum uint32) (err error) {
	if x.next.last < l {
		return nil
	}
	if l < x.next.last { // before a read, which would wait for the database, too
		if over := e.moves.truncates(x.id); over != nil {
			return core.Errorf(core.CodeUnavailable, "extent %s cannot be sealed now; try again: %w", x.id, errMoving{over})
		}
		defer func() {
			if err != nil {
				e.moves.truncated(x.id)
			}
		}()
	}
	end := position{last: l, committed: x.next.committed, indexed: min(l, x.next.indexed)}
	switch {
	case l == x.next.last:
		end.checksum, end.bytes = x.next.checksum, x.next.bytes
	case l > 0:
		b, err := e.batchAt(x, l)
		if err != nil {
			return err
		}
		if b.Last() != l {
			return core.Errorf(core.CodeConflict, "extent %s: %d is inside a batch, which ends at %d", x.id, l, b.Last())
		}
		beyond, err := e.bytesFrom(x, l+1)
		if err != nil {
			return err
		}
		end.checksum, end.bytes = b.Checksum, x.next.bytes-min(beyond, x.next.bytes)
	}
	if end.checksum != checksum {
		e.quarantine(x, "checksum at the sealed end differs from the other replicas'", true)
		return core.Errorf(core.CodeCorrupt, "extent %s: rolling checksum at %d is %08x, the seal says %08x; the replica is quarantined", x.id, l, end.checksum, checksum)
	}
	if l < x.next.last {
		if x.next.timer() {
			if err := e.stageDueCut(g, x, l); err != nil {
				return err
			}
		}
		if err := g.batch.DeleteRange(batchKey(x.id, l+1), afterExtent(prefixBatch, x.id), nil); err != nil {
			return e.fail(err)
		}
		x.truncate(l)
		c := g.touch(x)
		c.truncated, c.deletes, c.cut = true, true, x.held.cut(l)
	}
	x.next.position = end
	return nil
}

// Remove implements Log. It goes on when its caller has left: until the range is cut out, the id stays taken, for a new
// replica under it would be cut, too.
func (e *Engine) Remove(id core.ExtentID, version uint64) error {
	done, err := e.reading() // to the end of the removal
	if err != nil {
		return err
	}
	var r removal
	var x *extent
	answer, err := e.begin(request{control: true, stage: func(g *group) error {
		if x = e.extent(id); x != nil && x.isRemoved() {
			x = nil
		}
		if x == nil || x.next.Extent.ID.IsZero() {
			x = nil
			return e.graveyard.admitsRemoval(id, version)
		}
		if err := removable(x, version); err != nil {
			return err
		}
		r = removal{timer: x.next.timer(), bytes: e.inDatabase(x)}
		r.cut = r.bytes >= exciseAbove || x.damaged()
		over, n := x.held.underway()
		if r.drains = n; over != nil {
			r.drains-- // what it has put into the database may be above the deletion of the rows
		}
		if err := e.stageRemoval(g, x, version); err != nil {
			return err
		}
		r.moved = e.moves.removes(x.id)
		return nil
	}})
	if err != nil {
		done()
		return err
	}
	finished := make(chan error, 1)
	go func() {
		defer done()
		err := <-answer
		if err == nil && x != nil {
			err = e.giveBack(x, r)
		}
		finished <- err
	}()
	return await(finished)
}

// removal is what is known of an extent when its removal is staged.
type removal struct {
	timer  bool
	bytes  uint64          // that the database may have
	cut    bool            // they are cut out at once
	drains int             // of the extent that had ended
	moved  <-chan struct{} // closed when the move of its batches is over; nil: none is under way
}

// giveBack gives a removed extent's memory back, and its space, at once or with that of others. If its range cannot be
// cut out, that is tried again, and the id stays taken. Drains that ended after the removal was staged, or are under
// way, may put batches above the deletion of the rows. So may a move that was under way then. A drain that begins now
// finds nothing, and no move begins.
func (e *Engine) giveBack(x *extent, r removal) error {
	defer e.journal.keeper.removed(x.id)
	x.tail.drop(e.tails)
	e.cursors.sweep(func(c *cursor) bool { return c.x == x })
	drained, begun := x.held.underway()
	for _, over := range []<-chan struct{}{drained, r.moved} {
		if over == nil {
			continue
		}
		select {
		case <-over:
		case <-e.failed:
			return e.refusing()
		}
	}
	cut := r.cut || begun > r.drains || r.moved != nil
	if cut {
		if err := e.cutContents(x.id, r.timer); err != nil {
			e.uncut.add(x, r.timer, time.Now())
			return core.Errorf(core.CodeInternal, "extent %s is removed, but its space is not given back yet; the store tries that again: %w", x.id, err)
		}
	}
	e.forget(x.id)
	if !cut && r.bytes > 0 {
		e.debris.add(x.id, r.timer, int64(r.bytes), e.journal.keeper.garbage.Load()/2)
	}
	return nil
}

// inDatabase is how many bytes the database may have of an extent: none of one that only the ring has.
func (e *Engine) inDatabase(x *extent) uint64 {
	if !x.next.timer() && x.held.ringOnly() {
		return 0
	}
	return x.next.bytes
}

// removable refuses a removal that the extent's seal row did not decide: the row's version was told to this store,
// durably, together with the end, before. A version that nobody told is no proof, however large it is.
func removable(x *extent, version uint64) error {
	known := x.next.Version
	switch {
	case !x.next.Fenced:
		return core.Errorf(core.CodeConflict, "extent %s takes appends here; it is not removed before it is fenced and told its end", x.id)
	case version < known:
		return core.Errorf(core.CodeConflict, "extent %s: version %d of its holders is known here, and %d decided to remove it; decide again", x.id, known, version)
	case version > known:
		return core.Errorf(core.CodeConflict, "extent %s: version %d of its holders is known here, %d was never told; tell the store the end with that version before it removes the extent", x.id, known, version)
	case !x.next.Sealed && known == 0:
		return core.Errorf(core.CodeConflict, "extent %s was never told its end here; it is not removed before", x.id)
	}
	return nil
}

func (e *Engine) stageRemoval(g *group, x *extent, version uint64) error {
	for _, prefix := range []byte{prefixRow, prefixPosition} {
		if err := g.batch.Delete(extentKey(prefix, x.id), nil); err != nil {
			return e.fail(err)
		}
	}
	deletes := !x.held.ringOnly() || e.inDatabase(x) > 0 // else it leaves with the segments of the log
	for _, prefix := range contents(x.next.timer()) {
		if !deletes {
			break
		}
		if err := g.batch.DeleteRange(extentKey(prefix, x.id), afterExtent(prefix, x.id), nil); err != nil {
			return e.fail(err)
		}
	}
	if err := e.stageBurial(g, x.id, version, time.Now()); err != nil {
		return err
	}
	g.removed = append(g.removed, x.id)
	x.next = durable{}
	x.remove()
	c := g.touch(x)
	c.deletes, c.cut = deletes, x.held.cut(0)
	return nil
}
