package extentlog

import (
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Append implements Log. It never blocks: over the bounds of what waits, done gets CodeThrottled.
func (e *Engine) Append(id core.ExtentID, batch []byte, committed core.Seq, done Appended) {
	x := e.extent(id)
	if x == nil {
		e.refuseInOrder(done, notFound(id))
		return
	}
	news, timer := x.commit(committed)
	if news {
		defer x.wake()
	}
	r := request{appending: appending{extent: x, batch: batch, done: done}, bytes: len(batch)}
	if timer {
		r.index = len(batch)
	}
	switch e.queue.offer(r) {
	case offerClosed:
		done(0, e.ended())
	case offerFull:
		e.refuseInOrder(done, errFull())
	}
}

// refuseInOrder answers behind the appends that wait, without keeping the batch.
func (e *Engine) refuseInOrder(done Appended, why error) {
	r := request{
		stage:  func(*group) error { return why },
		answer: func(err error) { done(0, err) },
	}
	if e.queue.offer(r) == offerClosed {
		done(0, e.ended())
	}
}

func (e *Engine) stageAppend(g *group, x *extent, batch []byte) error {
	if err := e.admitAppend(len(batch)); err != nil {
		return err
	}
	switch {
	case x.next.Extent.ID.IsZero():
		return notFound(x.id)
	case x.next.Fenced:
		return core.Errorf(core.CodeFenced, "extent %s is fenced", x.id)
	case !x.next.Opened || x.next.Header.Run != e.identity.Run:
		return core.Errorf(core.CodeFenced, "extent %s was opened in another run of this store; seal it and go on in a new extent", x.id)
	case x.damaged():
		return damaged(x.id)
	}
	return e.stageBatch(g, x, batch)
}

// stageBatch adds a batch that continues the extent.
func (e *Engine) stageBatch(g *group, x *extent, bytes []byte) error {
	b, err := wire.DecodeBatch(bytes)
	if err != nil {
		return err
	}
	if err := continues(x.id, x.next.position, b); err != nil {
		return err
	}
	if err := e.journal.stage(g, x, b); err != nil {
		return err
	}
	timer := x.next.timer()
	if timer {
		x.next.index(b.BatchHeader)
	}
	x.next.last = b.Last()
	x.next.checksum = b.Checksum
	x.next.bytes += uint64(len(bytes))
	g.touch(x)
	g.appends = append(g.appends, staged{x, b, timer})
	return nil
}

// continues refuses a batch that does not follow at with the same records before it.
func continues(id core.ExtentID, at position, b wire.Batch) error {
	if b.Base != at.last+1 {
		return core.Errorf(core.CodeGap, "extent %s: batch begins at %d, expected %d", id, b.Base, at.last+1)
	}
	if sum := wire.ExtendChecksum(at.checksum, b.Records); sum != b.Checksum {
		return core.Errorf(core.CodeCorrupt, "extent %s: rolling checksum after %d is %08x, the batch says %08x", id, b.Last(), sum, b.Checksum)
	}
	return nil
}

// Commit implements Log.
func (e *Engine) Commit(id core.ExtentID, committed core.Seq) {
	x := e.extent(id)
	if x == nil {
		return
	}
	if news, _ := x.commit(committed); news {
		x.wake()
	}
}
