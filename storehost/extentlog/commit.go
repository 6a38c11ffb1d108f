package extentlog

import (
	"math/bits"
	"time"
)

// round is one turn of the log: the requests taken together, and what one sync makes durable.
//
//	queue ─▶ commitLoop: check, stage, write (no wait) ─▶ settleLoop: wait for the sync, publish, answer in order, wake
//
// While one round is synced, the next is staged and written; what arrives meanwhile gathers for the one after.
type round struct {
	requests []request
	errs     []error // one for each request; nil: staged
	bytes    int     // of the requests that were staged
	size     int     // bytes that are written
	group    group
	err      error // of the write
	written  time.Time
}

// commitLoop is the log's one writer and the owner of every extent's next. A round that settleLoop or giveUp has taken
// is theirs, and commitLoop goes on with a spare one.
func (e *Engine) commitLoop() {
	defer close(e.rounds)
	idle := time.NewTimer(markAfter)
	defer idle.Stop()
	r := new(round)
	for {
		r.requests = e.take(r.requests, idle)
		if len(r.requests) == 0 {
			return
		}
		e.pulse.begin(time.Now()) // before it is staged: a control may read batches, from a disk that hangs
		switch {
		case !e.write(r):
			r = new(round)
		case !e.handOver(r):
			e.answer(r, e.refusing())
			r = new(round)
		default:
			r = <-e.spare
		}
	}
}

// take waits for requests, and answers those of a round; nil when the log is closed and all is drained. When none comes
// for a while, it marks how far the log is durable.
func (e *Engine) take(into []request, idle *time.Timer) []request {
	for {
		round, closed := e.queue.tryTake(into[:0])
		if len(round) > 0 || closed {
			return round
		}
		if !e.journal.toMark {
			<-e.queue.wake
			continue
		}
		idle.Reset(markAfter)
		select {
		case <-e.queue.wake:
		case <-idle.C:
			e.journal.mark()
		}
	}
}

// handOver gives a round to settleLoop; false when that has stopped, since the log has failed.
func (e *Engine) handOver(r *round) bool {
	select {
	case e.rounds <- r:
		return true
	default:
	}
	select {
	case e.rounds <- r:
		return true
	case <-e.failed:
		return false
	}
}

// write stages the round and gives it to the database without waiting for the disk; false when giveUp has answered it
// meanwhile.
func (e *Engine) write(r *round) bool {
	r.bytes, r.size, r.errs, r.err = 0, 0, r.errs[:0], nil
	if r.err = e.refusing(); r.err != nil {
		r.errs = append(r.errs, make([]error, len(r.requests))...)
		return true
	}
	r.group = e.journal.begin(len(r.requests))
	taken := 0
	for i := range r.requests {
		err := e.refusing()
		if err == nil {
			err = r.requests[i].staged(e, &r.group)
		}
		if err == nil {
			r.bytes += r.requests[i].bytes
		}
		r.errs = append(r.errs, err)
		size := e.journal.size(&r.group)
		e.space.take(size - taken)
		taken = size
	}
	if r.err = e.stagePositions(&r.group); r.err != nil || r.group.batch.Empty() {
		return true
	}
	r.written, r.size = time.Now(), e.journal.size(&r.group)
	e.applying.Store(r)
	if r.err = e.refusing(); r.err == nil {
		r.err = e.journal.write(&r.group)
	}
	return e.applying.CompareAndSwap(r, nil)
}

// batchRoom is the size of the buffer for a batch of so many bytes. A batch that finds its buffer too small doubles it,
// and copies all that is staged. Buffers are used again, so they have few sizes.
func batchRoom(bytes int) int {
	if bytes > maxGroupBytes {
		return bytes
	}
	return 1 << bits.Len(uint(bytes))
}

// stagePositions adds the positions of all extents touched, and keeps what they are to become.
func (e *Engine) stagePositions(g *group) error {
	for i := range g.touched {
		c := &g.touched[i]
		if !c.extent.next.Extent.ID.IsZero() {
			c.extent.next.committed = max(c.extent.next.committed, c.extent.committed())
		}
		c.after = c.extent.next
		c.extent.staged = nil
		if c.after.Extent.ID.IsZero() {
			continue // removed
		}
		op := g.batch.SetDeferred(extentKeyLen, c.after.positionLen())
		putExtentKey(op.Key, prefixPosition, c.extent.id)
		c.after.put(op.Value)
		if err := op.Finish(); err != nil {
			return e.fail(err)
		}
	}
	return nil
}

// settleLoop makes written rounds durable, one after another.
func (e *Engine) settleLoop() {
	defer close(e.settled)
	for r := range e.rounds {
		e.syncing.Store(r)
		if failed := e.broken.Load(); failed != nil && r.err == nil { // giveUp may have looked for rounds before this one came
			r.err = failed
		}
		if r.err == nil {
			r.err = e.sync(&r.group)
		}
		e.pulse.end()
		if !e.syncing.CompareAndSwap(r, nil) {
			e.spare <- new(round) // giveUp answers it
			continue
		}
		if r.err == nil && len(r.group.appends) > 0 {
			took := time.Since(r.written)
			e.pulse.beat(r.bytes, took)
			e.queue.settled(r.size, took)
		}
		e.answer(r, r.err)
		for _, c := range r.group.touched {
			c.extent.wake()
		}
		clear(r.requests)
		clear(r.errs)
		if cap(r.requests) > 4096 {
			r.requests, r.errs = nil, nil
		}
		r.group = group{}
		e.spare <- r
	}
}

// sync waits for the disk and makes the group visible. Not after a failure, for then nobody can say what is on the
// disk.
func (e *Engine) sync(g *group) error {
	defer g.batch.Close()
	if !g.batch.Empty() {
		if err := e.journal.sync(g); err != nil {
			return err
		}
	}
	if err := e.refusing(); err != nil { // also for a group with nothing to write: it speaks of what an earlier one was to make durable
		return err
	}
	for _, s := range g.appends {
		if s.extent.followed() {
			s.extent.tail.add(s.batch.Bytes, e.tails)
		}
	}
	for _, c := range g.touched {
		if c.deletes {
			e.moves.deletions.Add(1)
		}
		if c.cut > 0 {
			e.journal.keeper.drops(c.extent.held.dropCut(c.cut), &e.journal.keeper.dropped)
		}
		if c.truncated {
			e.moves.truncated(c.extent.id)
			c.extent.tail.drop(e.tails)
		}
		if c.extent.publish(c.after) || c.after.Extent.ID.IsZero() {
			e.index.note(c.extent, e.identity.Run)
		}
	}
	for _, x := range g.lifted {
		x.release()
		e.index.note(x, e.identity.Run)
	}
	return nil
}
