package client

import (
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// The inbox of a consumer with a limit keeps its budget: what was yielded, what waits and what was asked for change
// together. Without a limit these do nothing.

// joinLocked takes the host of a new stream in, of which the consumer holds most messages at once.
func (b *inbox) joinLocked(s *consumeStream, most int) {
	if b.mu.budget != nil {
		s.account = b.mu.budget.join(s, most)
	}
}

// setMost changes how many messages of a host the consumer holds at once.
func (b *inbox) setMost(s *consumeStream, most int) {
	b.change(func(*budget) {
		if s.account != nil {
			s.account.most = most
		}
	})
}

// leaveLocked removes the host of an ended stream: the client asks it for no more messages. The application may
// still get those that the client already holds.
func (b *inbox) leaveLocked(s *consumeStream) {
	if b.mu.budget != nil && s.account != nil {
		b.mu.budget.leave(s.account)
	}
}

func (b *inbox) recalled(s *consumeStream, n int) {
	b.change(func(u *budget) {
		if s.account != nil {
			u.recalled(s.account, n)
		}
	})
}

func (b *inbox) setStopped(s *consumeStream, stopped bool) {
	b.change(func(*budget) {
		if s.account != nil {
			s.account.stopped = stopped
		}
	})
}

// change applies f to the budget and asks whom it says then.
func (b *inbox) change(f func(*budget)) {
	b.mu.Lock()
	if b.mu.budget != nil {
		f(b.mu.budget)
	}
	asks := b.planLocked()
	b.mu.Unlock()
	perform(asks)
}

// turn gives other hosts a turn, and gives up the streams whose hosts stand still. A host that is heard is slow at
// most: its answer may be behind a large message.
func (b *inbox) turn() {
	b.mu.Lock()
	var asks []ask
	var unanswered []*consumeStream
	if b.mu.budget != nil && !b.mu.over {
		now := time.Now()
		asks, unanswered = b.mu.budget.turn(now), b.mu.budget.unanswered(now)
	}
	b.mu.Unlock()
	perform(asks)
	for _, s := range unanswered {
		if s.mux.Conn.Silent() >= recallTimeout {
			s.giveUp(core.Errorf(core.CodeUnavailable, "output host %s was asked for its credit and sent nothing for %s", s.host.id, recallTimeout))
		}
	}
}

func (b *inbox) planLocked() []ask {
	if b.mu.budget == nil || b.mu.over {
		return nil
	}
	return b.mu.budget.plan(time.Now())
}

func (b *inbox) arrivedLocked(s *slab) {
	if a := s.stream.account; a != nil {
		b.mu.budget.arrived(a, len(s.deliveries), s.received)
	}
}

// heldLocked counts a slab that another stream has carried before.
func (b *inbox) heldLocked(s *slab) {
	if a := s.carrier.account; a != nil {
		b.mu.budget.carried(a, len(s.deliveries)-s.next)
	}
}

func (b *inbox) returnedLocked(s *slab) {
	if a := s.carrier.account; a != nil {
		b.mu.budget.returned(a, len(s.deliveries)-s.next)
	}
}

// yieldedLocked counts a delivery that is being yielded; the last one ends the inbox.
func (b *inbox) yieldedLocked(d *Delivery) []ask {
	if b.mu.budget == nil || d == nil {
		return nil
	}
	due := b.mu.budget.yielded(d.slab.carrier.account)
	if b.mu.budget.missing == 0 {
		b.endLocked(nil)
	}
	if !due {
		return nil
	}
	return b.planLocked()
}

// perform tells the hosts; a stream that was lost meanwhile has left the budget, or is about to.
func perform(asks []ask) {
	for _, a := range asks {
		flags := uint16(0)
		if a.messages == 0 {
			flags = wire.FlagRecall
		}
		a.stream.out.ask(flags, wire.Credit{Messages: uint32(a.messages)})
	}
}
