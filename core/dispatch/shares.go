package dispatch

import (
	"fmt"
	"time"

	"github.com/columbamq/columba/core"
)

// AddShare begins (or resumes) an extent from state; the zero State begins at seq 1. Remaining locks and delays of the
// state are honoured. The extent must not have a share yet.
func (g *Group) AddShare(extent core.ExtentID, state State, now time.Time) *Share {
	return g.addShare(extent, state, false, now)
}

func (g *Group) addShare(extent core.ExtentID, state State, timers bool, now time.Time) *Share {
	if g.shares[extent] != nil {
		panic(fmt.Sprintf("dispatch: extent %s has a share already", extent))
	}
	g.at(now)
	s := &Share{
		group: g, extent: extent, timers: timers, done: *state.done.Clone(), table: newTable(), covers: state.covers,
		squeezeAt: MaxOutstandingBytes / 2,
	}
	s.begin()
	g.shares[extent] = s
	s.restore(state)
	s.touch()
	g.resumeBreaker(state.Policy(PolicyBreaker))
	return s
}

// AddTimers is AddShare for a timer extent.
func (g *Group) AddTimers(extent core.ExtentID, state State, now time.Time) *Share {
	return g.addShare(extent, state, true, now)
}

// RemoveShare forgets the share and releases its buffers, those of TakeTransfers once they are answered. Take the final
// checkpoint before.
func (g *Group) RemoveShare(s *Share) {
	if s.gone {
		return
	}
	g.settleGiven()
	s.gone = true
	g.detach(s)
	delete(g.shares, s.extent)
	*s = Share{
		group: g, extent: s.extent, timers: s.timers, gone: true, done: s.done, next: s.next, table: newTable(),
		held: s.held, heldBytes: s.heldBytes, lent: s.lent,
	}
	s.supply = newLogSupply(s)
}

// Rebuild makes the state of a share anew from what is known of its messages: settled messages stay settled, locks,
// delays and attempts stay, and everything from ReadFrom on is read again.
func (g *Group) Rebuild(s *Share, now time.Time) {
	g.at(now)
	g.settleGiven()
	if s.gone {
		return
	}
	g.detach(s)
	was := *s
	*s = Share{
		Owner: s.Owner, group: g, extent: s.extent, timers: s.timers, merged: s.merged, returning: s.returning,
		rate: s.rate, paced: s.paced, chained: s.chained, waits: s.waits, listed: s.listed, staying: s.staying, covers: s.covers,
		done: s.done, table: newTable(), full: s.full,
		held: s.held, heldBytes: s.heldBytes, squeezeAt: MaxOutstandingBytes / 2, lent: s.lent,
		withheld: s.withheld, withholds: s.withholds, token: s.token, saved: s.saved, changed: true,
	}
	if was.transfers != nil {
		s.transfers = new([Destinations]transfers)
	}
	s.begin()
	was.table.each(func(seq core.Seq, m *message) {
		if !s.done.Done(seq) { // what is in the supply is read again
			s.replace(seq, m, was.table.note(seq))
		}
	})
	s.touch()
	s.wake()
}

// begin has everything be read that is not done.
func (s *Share) begin() {
	s.next = s.done.Frontier() + 1
	if s.supply = newLogSupply(s); s.timers || s.returning {
		s.supply = newDueSupply(s)
	}
}

// detach takes a share out of all that the group keeps, and gives back the bytes of its batches: of those that are
// being written elsewhere once they are.
func (g *Group) detach(s *Share) {
	g.leaveAlone(s)
	g.dropHeld(s)
	g.inFlight -= int32(s.of(inFlight))
	g.forgetClaims(s)
	g.firsts -= int32(s.of(inFlight)) - s.repeats
	for i := len(s.held) - 1; i >= 0; i-- { // release moves the last one to i
		b := s.held[i]
		if b.left, b.live = 0, 0; b.lent == 0 {
			s.release(b)
		}
	}
	g.locks.filter(func(l *lock) bool { return l.share != s })
	g.timers.filter(func(t *timer) bool { return t.share != s })
	s.turns().forget(s)
	here := func(ref *messageRef) bool { return ref.share != s }
	if g.drops != nil {
		g.drops.filter(func(x *dropped) bool { return x.share != s })
	}
	for to := range g.transfers {
		g.transfers[to].filter(here)
	}
}

// replace takes over what was known of a message.
func (s *Share) replace(seq core.Seq, was *message, n note) {
	m := s.table.put(seq)
	s.keepNote(seq, n)
	m.attempts, m.failure, m.session, m.due = was.attempts, was.failure, was.session, was.due
	s.missing++
	s.top = max(s.top, seq)
	switch was.phase {
	case inFlight, delayed:
		s.move(seq, m, was.phase)
		s.group.wakeAt(s, seq, m.due)
		if was.phase == delayed {
			s.waitsNacked(seq, m)
		}
	case unclaimed, unsaved, isolated:
		s.retry(seq, m)
	case leaving, announced, transferring, appending, held:
		s.rebuildTransfer(seq, m, was.phase)
	case ready:
		if s.needsIsolation(seq, m) {
			s.setApart(seq, m)
			return
		}
		s.move(seq, m, ready)
	default: // blocked
		s.move(seq, m, was.phase)
	}
}

// Update changes the rules from now on. Locks that run keep their deadline; messages blocked under the old rules, or
// exhausted under the new ones, are judged again, and so are those on their way to a dead letter queue that the group
// does not want there any more, unless they may be there.
func (g *Group) Update(spec core.GroupSpec, now time.Time) {
	g.at(now)
	redelay := spec.Delay != g.spec.Delay
	if spec.LockTimeout != g.spec.LockTimeout {
		g.noteHandedOut()
	}
	g.spec = spec
	if g.breaker != nil {
		g.breaker.set(g.breakerPercent(), spec.LockTimeout, g.unlimited())
		g.keepBreaker()
	}
	g.retries.set(&spec)
	if spec.NoNackThrottle {
		g.throttle = throttle{}
	}
	for _, s := range g.shares {
		s.table.each(func(seq core.Seq, m *message) {
			switch m.phase {
			case delayed, unclaimed, unsaved, ready:
				if s.exhausted(seq, m) {
					s.judge(seq, m, 0)
				}
			case isolated:
				if s.exhausted(seq, m) || !s.isLast(seq, m) {
					s.judge(seq, m, 0)
				}
			case blocked:
				s.judge(seq, m, 0)
			case leaving, announced, transferring, held:
				s.rejudgeTransfer(seq, m)
			}
		})
		s.dropClaims()
		s.listNacked()
		if d, ok := s.supply.(*dueSupply); ok && redelay {
			d.requeue()
		}
		s.change()
		s.wake()
	}
}
