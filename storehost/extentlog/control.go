package extentlog

import (
	"context"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

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
	if err = await(answer); errors.Is(err, errSwept) && e.awaitSweep() {
		return e.do(r) // the next sweep is seconds away
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
func (e *Engine) stageTruncate(g *group, x *extent, l core.Seq, checksum uint32) error {
	if x.next.last < l {
		return nil
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
		c.truncated, c.cut = true, x.held.cut(l)
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
	var cut, small, timer bool
	var drains int // of the extent, before
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
		timer = x.next.timer()
		cut = e.inDatabase(x) >= exciseAbove || x.damaged()
		small = !cut && e.inDatabase(x) > 0
		over, n := x.held.underway()
		if drains = n; over != nil {
			drains-- // what it has put into the database may be above the deletion of the rows
		}
		return e.stageRemoval(g, x, version)
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
			if err = e.giveBack(x, drains, cut, timer); err == nil && small {
				e.debris.add(x.id, timer)
			}
		}
		finished <- err
	}()
	return await(finished)
}

// giveBack gives a removed extent's memory back, and its space, if its range is to be cut out. If that fails, it is
// tried again, and the id stays taken. drains is how many drains of the extent had ended when the removal was staged.
// Drains that ended later, or are under way, may put batches above the deletion of the rows. A drain that begins now
// finds nothing.
func (e *Engine) giveBack(x *extent, drains int, cut, timer bool) error {
	defer e.journal.keeper.removed(x.id)
	x.tail.drop(e.tails)
	e.cursors.sweep(func(c *cursor) bool { return c.x == x })
	over, begun := x.held.underway()
	if over != nil {
		select {
		case <-over:
		case <-e.failed:
			return e.refusing()
		}
	}
	cut = cut || begun > drains
	if cut {
		if err := e.cutContents(x.id, timer); err != nil {
			e.uncut.add(x, timer, time.Now())
			return core.Errorf(core.CodeInternal, "extent %s is removed, but its space is not given back yet; the store tries that again: %w", x.id, err)
		}
	}
	e.forget(x.id)
	return nil
}

// cutContents removes the records of an extent from all tables.
func (e *Engine) cutContents(id core.ExtentID, timer bool) error {
	for _, prefix := range contents(timer) {
		span := pebble.KeyRange{Start: extentKey(prefix, id), End: afterExtent(prefix, id)}
		if err := e.guarded(func() error { return e.cutOut(span) }); err != nil {
			return err
		}
	}
	return nil
}

// cutOut removes a range from all tables. If one of them cannot be read beside the range, all stay as they are.
func (e *Engine) cutOut(span pebble.KeyRange) error {
	return e.excising(span, func() error { return e.db.Excise(context.Background(), span) })
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

// contents are the prefixes under which an extent's records are.
func contents(timer bool) []byte {
	if timer {
		return []byte{prefixBatch, prefixDue}
	}
	return []byte{prefixBatch}
}

func (e *Engine) stageRemoval(g *group, x *extent, version uint64) error {
	for _, prefix := range []byte{prefixRow, prefixPosition} {
		if err := g.batch.Delete(extentKey(prefix, x.id), nil); err != nil {
			return e.fail(err)
		}
	}
	for _, prefix := range contents(x.next.timer()) {
		if x.held.ringOnly() && e.inDatabase(x) == 0 {
			break // it leaves with the segments of the log
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
	g.touch(x).cut = x.held.cut(0)
	return nil
}
