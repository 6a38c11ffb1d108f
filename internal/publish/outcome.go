package publish

import (
	"errors"
	"slices"

	"github.com/columbamq/columba/core"
)

// outcome is what the owners of some neighbouring records of a batch are to be told.
type outcome struct {
	batch *batch
	slots []slot
	size  int // encoded bytes
	at    core.Receipt
	err   error
}

// settleLocked gives the slots lo to hi that have no outcome theirs: at (the first slot's) or err. answered: by the
// host.
func (p *Publisher) settleLocked(b *batch, lo, hi int, at core.Receipt, err error, answered bool) {
	from := lo
	for i := lo; i < hi; i++ {
		s := &b.slots[i]
		if answered && s.state&slotOpen != 0 {
			s.state &^= slotOpen
			b.open--
		}
		known := s.state&slotSettled != 0
		unsure := err != nil && s.state&(slotMaybe|slotOpen) != 0
		if !known {
			s.state |= slotSettled
			b.left--
		}
		if !known && !unsure {
			continue
		}
		p.emitLocked(b, from, i, at, lo, err)
		from = i + 1
		if !known {
			p.emitLocked(b, i, i+1, at, lo, core.Errorf(core.CodeUnknown, "the message may or may not be stored: %w", err))
		}
	}
	p.emitLocked(b, from, hi, at, lo, err)
}

// emitLocked queues the outcome of the slots from … to; at is that of slot lo.
func (p *Publisher) emitLocked(b *batch, from, to int, at core.Receipt, lo int, err error) {
	if from >= to {
		return
	}
	if err == nil {
		at.Seq += core.Seq(from - lo)
	} else {
		at = core.Receipt{}
	}
	b.refs.Add(1)
	p.mu.settled = append(p.mu.settled, outcome{
		batch: b, slots: b.slots[from:to], size: int(b.slots[to-1].end - b.start(from)), at: at, err: err,
	})
}

// failLocked settles what has no outcome in a batch.
func (p *Publisher) failLocked(b *batch, err error) {
	p.settleLocked(b, 0, len(b.slots), core.Receipt{}, err, false)
}

// failWaitingLocked fails what is not in flight.
func (p *Publisher) failWaitingLocked(err error) {
	for _, b := range p.mu.queue {
		p.failLocked(b, err)
		b.release()
	}
	p.mu.queue = nil
	if b := p.mu.current; b != nil {
		p.mu.current = nil
		p.failLocked(b, err)
		b.release()
	}
}

// expireLocked fails the records whose time is up.
func (p *Publisher) expireLocked(now int64) {
	if now < p.mu.nextExpiry {
		return
	}
	p.mu.nextExpiry = never
	for _, b := range p.mu.live {
		p.expireBatchLocked(b, now)
	}
	p.mu.queue = slices.DeleteFunc(p.mu.queue, dropped)
	if p.mu.current != nil && dropped(p.mu.current) {
		p.mu.current = nil
	}
	signal(p.outcomes) // never blocks
}

// remadeLocked gives up what may be stored in a queue that was deleted since: another one has its path now, and must
// not get messages of before.
func (p *Publisher) remadeLocked() {
	err := core.Errorf(core.CodeNotFound, "queue %s was deleted, and created again since", p.cfg.Queue)
	for _, b := range p.mu.queue {
		for i := range b.slots {
			if b.slots[i].state&(slotSettled|slotMaybe) == slotMaybe {
				p.settleLocked(b, i, i+1, core.Receipt{}, err, false)
			}
		}
	}
	p.mu.queue = slices.DeleteFunc(p.mu.queue, dropped)
	signal(p.outcomes)
}

// dropped releases a waiting batch of which nothing is left.
func dropped(b *batch) bool {
	if b.left > 0 {
		return false
	}
	b.release()
	return true
}

func (p *Publisher) expireBatchLocked(b *batch, now int64) {
	for i := range b.slots {
		s := &b.slots[i]
		switch {
		case s.state&slotSettled != 0:
		case s.deadline > now:
			p.mu.nextExpiry = min(p.mu.nextExpiry, s.deadline)
		default:
			p.settleLocked(b, i, i+1, core.Receipt{}, p.lateErrLocked(), false)
		}
	}
}

// lateErrLocked says why a record could not be published in time.
func (p *Publisher) lateErrLocked() error {
	if p.mu.lastErr == nil {
		return core.Errorf(core.CodeUnavailable, "no input host of %s took the message in time", p.cfg.Queue)
	}
	code := core.CodeOf(p.mu.lastErr)
	if code.Class() != core.ClassThrottled {
		code = core.CodeUnavailable
	}
	late := core.Errorf(code, "no input host of %s took the message in time: %w", p.cfg.Queue, p.mu.lastErr)
	for err := p.mu.lastErr; err != nil && late.RetryAfter == 0; err = errors.Unwrap(err) {
		if e, ok := err.(*core.Error); ok {
			late.RetryAfter = e.RetryAfter
		}
	}
	return late
}

// complete tells the owners, until quit is closed and nothing is left to tell.
func (p *Publisher) complete(quit <-chan struct{}) {
	var work []outcome
	for ending := false; ; {
		p.mu.Lock()
		work, p.mu.settled = p.mu.settled, work[:0]
		p.mu.Unlock()
		if len(work) > 0 {
			p.tell(work)
			p.cfg.Told()
			clear(work)
			continue
		}
		if ending {
			return
		}
		select {
		case <-p.outcomes:
		case <-quit:
			ending = true
		}
	}
}

func (p *Publisher) tell(work []outcome) {
	for i := range work {
		o := &work[i]
		p.makeRoom(o) // first, so that an owner that appends again finds the room of its record
		at := o.at
		for j := range o.slots {
			if s := &o.slots[j]; s.done != nil {
				s.done.Settled(s.id, at, o.err)
			}
			if o.err == nil {
				at.Seq++
			}
		}
		p.told(o)
	}
}

// makeRoom counts the records as gone.
func (p *Publisher) makeRoom(o *outcome) {
	p.mu.Lock()
	p.mu.records -= len(o.slots)
	p.mu.bytes -= o.size
	room := p.mu.room
	p.mu.room = nil
	p.mu.Unlock()
	if room != nil {
		close(room)
	}
}

// told ends the flushes that waited for the records.
func (p *Publisher) told(o *outcome) {
	p.mu.Lock()
	o.batch.uncalled -= len(o.slots)
	var over []*batch
	for len(p.mu.live) > 0 && p.mu.live[0].uncalled == 0 && p.mu.live[0] != p.mu.current {
		over = append(over, p.mu.live[0])
		p.mu.live[0] = nil
		p.mu.live = p.mu.live[1:]
	}
	var flushed []flush
	if len(over) > 0 && len(p.mu.flushes) > 0 {
		p.mu.flushes = slices.DeleteFunc(p.mu.flushes, func(f flush) bool {
			if len(p.mu.live) > 0 && p.mu.live[0].number <= f.number {
				return false
			}
			flushed = append(flushed, f)
			return true
		})
	}
	p.mu.Unlock()
	o.batch.release()
	for _, b := range over {
		b.release()
	}
	for _, f := range flushed {
		close(f.done)
	}
}
