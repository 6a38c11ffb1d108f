package extentlog

import (
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Append implements Log. It never blocks: over the bound of what waits, done gets CodeThrottled.
func (e *Engine) Append(id core.ExtentID, batch []byte, committed core.Seq, done Appended) {
	x := e.extent(id)
	if x != nil && x.commit(committed) {
		defer x.wake()
	}
	var last core.Seq
	r := request{
		bytes: len(batch),
		stage: func(g *group) error {
			if err := e.stageAppend(g, x, id, batch); err != nil {
				return err
			}
			last = x.next.last
			return nil
		},
		answer: func(err error) {
			if err != nil {
				done(0, err)
				return
			}
			done(last, nil)
		},
	}
	switch e.queue.offer(r) {
	case offerClosed:
		done(0, errClosed())
	case offerFull:
		e.refuseInOrder(done)
	}
}

// refuseInOrder answers throttled behind the appends that wait, without keeping the batch.
func (e *Engine) refuseInOrder(done Appended) {
	r := request{
		stage: func(*group) error {
			return errFull()
		},
		answer: func(err error) { done(0, err) },
	}
	if e.queue.offer(r) == offerClosed {
		done(0, errClosed())
	}
}

func (e *Engine) stageAppend(g *group, x *extent, id core.ExtentID, batch []byte) error {
	if err := e.space.refuseAppend(); err != nil {
		return err
	}
	switch {
	case x == nil || x.next.Extent.ID.IsZero():
		return notFound(id)
	case x.next.Fenced:
		return core.Errorf(core.CodeFenced, "extent %s is fenced", id)
	case !x.next.Opened || x.next.Header.Run != e.identity.Run:
		return core.Errorf(core.CodeFenced, "extent %s was opened in another run of this store; seal it and go on in a new extent", id)
	case x.damaged():
		return damaged(id)
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
	if err := g.batch.Set(batchKey(x.id, b.Base), bytes, nil); err != nil {
		return e.fail(err)
	}
	x.next.last = b.Last()
	x.next.checksum = b.Checksum
	x.next.bytes += uint64(len(bytes))
	g.touch(x)
	g.appends = append(g.appends, staged{x, bytes})
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
	if x := e.extent(id); x != nil && x.commit(committed) {
		x.wake()
	}
}
