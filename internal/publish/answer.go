package publish

import (
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// answer applies the host's answers. It fails if they are about records that were not sent.
func (p *Publisher) answer(s *session, runs []wire.AckRun) error {
	now := p.now()
	p.mu.Lock()
	var bad error
	var move, spoiled bool
	for i := range runs {
		r := &runs[i]
		if r.First >= s.next || uint64(r.Count) > s.next-r.First {
			bad = core.Errorf(core.CodeBadFrame, "answer for records %d to %d, of %d sent", r.First, r.First+uint64(r.Count)-1, s.next-1)
			break
		}
		if p.answerRunLocked(s, r, now) {
			move = true
		}
		spoiled = spoiled || r.Status != wire.AckOK
	}
	if spoiled && s.ordered && bad == nil {
		p.mu.Unlock()
		p.beginAgain(s)
		return nil
	}
	leave := move && p.moveAwayLocked(s, p.mu.lastErr)
	if len(s.inflight) == 0 && slices.Contains(p.mu.leaving, s) {
		p.forgetLocked(s)
		s.over, leave = true, true
	}
	wake := p.mu.stuck || move || leave || len(p.mu.queue) > 0
	p.mu.Unlock()
	if leave {
		s.leave()
	}
	if wake {
		signal(p.wake)
	}
	signal(p.outcomes)
	return bad
}

// answerRunLocked reports whether the host asks, by what it refused, to be left.
func (p *Publisher) answerRunLocked(s *session, r *wire.AckRun, now int64) (move bool) {
	end := r.First + uint64(r.Count)
	i := sort.Search(len(s.inflight), func(i int) bool {
		return s.inflight[i].first+uint64(len(s.inflight[i].slots)) > r.First
	})
	err, again := p.verdict(s, r)
	if err == nil && !again {
		p.mu.failures, p.mu.lack = 0, lack{}
	} else if again {
		if r.Code != core.CodeThrottled || core.CodeOf(p.mu.lastErr) != core.CodeThrottled { // else it is known for how long, too
			p.mu.lastErr = err
		}
		if move = r.Code != core.CodeThrottled; move || now >= p.mu.pausedUntil {
			p.pauseLocked(now, jitter())
		}
	}
	for i < len(s.inflight) && s.inflight[i].first < end {
		b := s.inflight[i]
		lo := int(max(r.First, b.first) - b.first)
		hi := int(min(end, b.first+uint64(len(b.slots))) - b.first)
		base := r.Base + core.Seq(b.first+uint64(lo)-r.First)
		if again {
			b.reopenLocked(lo, hi, r.Status == wire.AckUnknown)
			p.settleUnknownLocked(b, err)
		} else {
			if err == nil {
				s.pace.stored += int(b.slots[hi-1].end - b.start(lo))
			}
			p.settleLocked(b, lo, hi, core.Receipt{Extent: r.Extent, Seq: base}, err, true)
		}
		if b.open > 0 {
			i++
			continue
		}
		s.inflight = slices.Delete(s.inflight, i, i+1)
		s.bytes -= len(b.buf)
		p.answeredLocked(b)
	}
	if again {
		p.lackedLocked(err, now) // nobody waits in Connect: there is a session
	}
	return move
}

// verdict reads an answer: the error of the records, nil for durable ones, and whether they are to be sent again.
func (p *Publisher) verdict(s *session, r *wire.AckRun) (err error, again bool) {
	switch {
	case r.Status == wire.AckOK:
		return nil, false
	case r.Status == wire.AckRefused && r.Code.Class() == core.ClassFatal && core.CodeOf(s.why) == r.Code:
		return core.Errorf(r.Code, "input host %s: %w", s.host.ID, s.why), false
	case r.Status == wire.AckRefused && r.Code.Class() == core.ClassFatal:
		return core.Errorf(r.Code, "input host %s refused the message (%s)", s.host.ID, r.Code), false
	}
	code := r.Code
	if code.Class() == core.ClassFatal || code.Class() == core.ClassUnknown {
		code = core.CodeUnavailable
	}
	if r.Status == wire.AckRefused && core.CodeOf(s.why) == r.Code {
		return core.Errorf(code, "input host %s: %w", s.host.ID, s.why), true
	}
	return core.Errorf(code, "input host %s could not store the message (%s)", s.host.ID, r.Code), true
}

// reopenLocked takes back the slots that the host did not store, or may not have stored.
func (b *batch) reopenLocked(lo, hi int, maybe bool) {
	for i := lo; i < hi; i++ {
		s := &b.slots[i]
		if s.state&slotOpen != 0 {
			s.state &^= slotOpen
			b.open--
		}
		if maybe {
			s.state |= slotMaybe
		}
	}
}

// unansweredLocked takes a batch back from a session that was lost, and why.
func (p *Publisher) unansweredLocked(b *batch, why error) {
	for i := range b.slots {
		if s := &b.slots[i]; s.state&slotOpen != 0 {
			s.state = s.state&^slotOpen | slotMaybe
		}
	}
	b.open = 0
	p.settleUnknownLocked(b, why)
	p.answeredLocked(b)
}

// settleUnknownLocked tells the owners of records that a try may have stored, if the publisher must not send these
// again. why is an error.
func (p *Publisher) settleUnknownLocked(b *batch, why error) {
	if !p.cfg.Once {
		return
	}
	for i := range b.slots {
		if b.slots[i].state&(slotSettled|slotMaybe) == slotMaybe {
			p.settleLocked(b, i, i+1, core.Receipt{}, why, false)
		}
	}
}

// answeredLocked decides what becomes of a batch that is in flight no more.
func (p *Publisher) answeredLocked(b *batch) {
	if b.left > 0 {
		p.requeueLocked(b)
		return
	}
	b.release()
}

// throttle holds sending back for as long as the error says, up to maxThrottle.
func (p *Publisher) throttle(why *core.Error) {
	p.mu.Lock()
	p.mu.lastErr = why
	p.mu.throttled = max(p.mu.throttled, p.now()+int64(min(why.RetryAfter, maxThrottle)))
	p.mu.pausedUntil = max(p.mu.pausedUntil, p.mu.throttled)
	p.mu.Unlock()
	signal(p.wake)
}

func jitter() float64 { return rand.Float64() }
