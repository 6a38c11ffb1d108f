package publish

import (
	"context"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Run sends until ctx ends or Close has flushed, and returns when every owner knows its outcome and every goroutine is
// joined. Call it once.
func (p *Publisher) Run(ctx context.Context) error {
	defer close(p.ended)
	ctx, cancel := context.WithCancel(ctx)
	quit := make(chan struct{})
	p.wg.Go(func() { p.complete(quit) })
	p.loop(ctx)
	cancel()
	p.shutdown()
	close(quit)
	p.wg.Wait()
	return nil
}

// loop is the only sender. Each turn it looks at the state and does one thing, or waits for a change. All that it waits
// for comes through wake: a select costs more than the rest of a turn.
func (p *Publisher) loop(ctx context.Context) {
	timer := time.AfterFunc(time.Hour, func() { signal(p.wake) })
	defer timer.Stop()
	defer context.AfterFunc(ctx, func() { signal(p.wake) })()
	armed := int64(0) // when the timer fires, if later than now
	for ctx.Err() == nil && !p.stopped() {
		now := p.now()
		t := p.turn(now)
		switch {
		case t.connect:
			p.wg.Go(func() { p.connect(ctx, t.aim) })
			continue
		case t.batch != nil:
			p.send(t.session, t.batch, t.first)
			continue
		}
		if t.until < never && (armed <= now || t.until < armed) {
			armed = max(t.until, now+int64(time.Microsecond))
			timer.Reset(time.Duration(armed - now))
		}
		<-p.wake
	}
}

func (p *Publisher) stopped() bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}

// turn is what the loop does next: connect, send batch on session, or wait until a change or a time.
type turn struct {
	connect bool
	aim     aim
	session *session
	batch   *batch
	first   uint64
	until   int64
}

func (p *Publisher) turn(now int64) turn {
	p.mu.Lock()
	p.mu.shares = 0
	p.expireLocked(now)
	look := now >= p.mu.nextTick
	var sessions []*session
	if look {
		p.mu.nextTick = now + int64(tick)
		sessions = p.waitingLocked()
	}
	t := p.turnLocked(now)
	p.mu.Unlock()
	for _, s := range sessions {
		p.watch(s, now)
	}
	return t
}

func (p *Publisher) turnLocked(now int64) turn {
	t := turn{until: p.mu.nextExpiry}
	if len(p.mu.live) > 0 {
		t.until = min(t.until, p.mu.nextTick)
	}
	p.mu.idle, p.mu.stuck = false, false
	s := p.mu.active
	b := p.headLocked()
	switch {
	case s == nil && (b != nil || len(p.mu.connects) > 0):
		if p.mu.connecting {
			return t
		}
		if p.mu.ordered && len(p.mu.leaving) > 0 {
			p.mu.stuck = true // what a session has in flight comes before what the next one sends
			return t
		}
		if now < p.mu.pausedUntil {
			t.until = min(t.until, p.mu.pausedUntil)
			return t
		}
		p.mu.connecting, p.mu.better = true, ""
		greet := min(greetTimeout<<min(p.mu.failures, 8), maxGreetTimeout)
		t.connect, t.aim = true, aim{avoid: p.mu.avoid, greet: greet}
		return t
	case s != nil && p.mu.better != "" && !p.mu.connecting:
		p.mu.connecting = true
		t.connect, t.aim = true, aim{to: p.mu.better, greet: maxGreetTimeout}
		p.mu.better = ""
		return t
	case b == nil:
		p.mu.idle = true
		return t
	case now < p.mu.pausedUntil:
		t.until = min(t.until, p.mu.pausedUntil)
		return t
	case now < s.pace.next && !p.urgentLocked(s, b):
		t.until = min(t.until, s.pace.next)
		return t
	case !s.takes(b, b == p.mu.current, now):
		p.mu.stuck = true // an answer, the end of a write or the next tick wakes the loop
		return t
	}
	p.takeLocked(b)
	t.batch, t.session, t.first = b, s, s.startLocked(b, now)
	return t
}

// urgentLocked reports whether a record of the batch would fail because of the session's pace.
func (p *Publisher) urgentLocked(s *session, b *batch) bool {
	return s.pace.tooLate(p.mu.nextExpiry) && slices.ContainsFunc(b.slots, func(r slot) bool {
		return r.state&slotSettled == 0 && s.pace.tooLate(r.deadline)
	})
}

// headLocked is the next batch to send, nil if there is none.
func (p *Publisher) headLocked() *batch {
	if len(p.mu.queue) > 0 {
		return p.mu.queue[0]
	}
	return p.mu.current
}

// takeLocked takes the head out of the queue for sending.
func (p *Publisher) takeLocked(b *batch) {
	if b == p.mu.current {
		p.mu.current = nil
	} else {
		p.mu.queue = slices.Delete(p.mu.queue, 0, 1)
	}
	if b.left < len(b.slots) {
		b.compact()
	}
}

// requeueLocked puts a batch that has to be sent again at its place.
func (p *Publisher) requeueLocked(b *batch) {
	i, _ := slices.BinarySearchFunc(p.mu.queue, b.number, func(q *batch, n uint64) int {
		return int(q.number) - int(n)
	})
	p.mu.queue = slices.Insert(p.mu.queue, i, b)
}

// send queues a batch; the session's window bounds what is queued.
func (p *Publisher) send(s *session, b *batch, first uint64) {
	var room [wire.FrameHeaderLen + 8]byte
	header := wire.AppendPublishHead(room[:0], s.stream, first, len(b.buf))
	if err := s.mux.Conn.PushOwned(header, b.buf, b.writtenOn(s)); err != nil {
		s.mux.Forget(s.stream)
		s.Closed(core.Errorf(core.CodeUnavailable, "send to input host %s: %w", s.host.ID, err))
	}
}

// pauseLocked holds sending and connecting back for a time that grows with the failures in a row.
func (p *Publisher) pauseLocked(now int64, random float64) {
	p.mu.failures++
	p.mu.pausedUntil = max(p.mu.pausedUntil, now+int64(retry.Delay(p.mu.failures, random)))
}

// shutdown fails what has no outcome and lets the sessions go.
func (p *Publisher) shutdown() {
	p.mu.Lock()
	if p.mu.closed == nil {
		p.mu.closed = errClosed(p.cfg.Queue)
	}
	p.mu.over = true
	sessions := p.mu.leaving
	if p.mu.active != nil {
		sessions = append(sessions, p.mu.active)
	}
	p.mu.active, p.mu.leaving = nil, nil
	for _, b := range p.mu.live {
		p.failLocked(b, p.mu.closed)
	}
	p.mu.queue, p.mu.current = nil, nil
	connects := p.mu.connects
	p.mu.connects = nil
	closed := p.mu.closed
	p.mu.Unlock()
	for _, s := range sessions {
		s.leave()
	}
	for _, c := range connects {
		c <- closed
	}
}
