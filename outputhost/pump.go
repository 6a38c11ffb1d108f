package outputhost

import (
	"time"

	"github.com/columbamq/columba/core/dispatch"
)

// pump does everything an event made possible: hand out, read on, transfer, save, set the next deadline. One goroutine at a
// time pumps a group; an event that comes meanwhile makes it go round once more.
func (g *group) pump() {
	g.mu.Lock()
	if g.mu.pumping {
		g.mu.again = true
		g.mu.Unlock()
		return
	}
	g.mu.pumping = true
	for {
		g.mu.again = false
		began, now := time.Now(), g.h.deps.Now()
		var out []delivery
		var leaving [dispatch.Destinations][]dispatch.Transfer
		mayGive := g.h.lease.MayGive(now)
		if mayGive {
			g.mu.rules.Tick(now)
			g.orderLocked()
			g.mu.rules.Want(g.demandLocked(), g.wantedLocked() || g.h.elapsed(now)-g.mu.pulled < pullAgain)
			if g.mu.paused == nil {
				out = g.takeLocked(now)
			}
			for to := range leaving {
				leaving[to] = g.outbox.Next(g.mu.rules, dispatch.Destination(to))
			}
		}
		reads := g.readLocked()
		urgent, changed := g.unsavedLocked()
		at, ok := g.mu.rules.NextDeadline()
		breaker := g.breakerLocked(now)
		g.mu.Unlock()
		breaker()

		g.h.deadlines.Set(g, at, ok && mayGive) // else what is past due comes up again at once; the beat pumps after a lapse
		for _, d := range out {
			d.send()
		}
		for _, r := range reads {
			r()
		}
		for _, some := range leaving {
			if len(some) > 0 {
				g.h.mover.Begin(leaver{g}, began, some)
			}
		}
		if changed {
			g.h.saver.note(g, urgent)
		}

		g.mu.Lock()
		if !g.mu.again && len(out) == 0 {
			g.mu.pumping = false
			g.mu.Unlock()
			return
		}
	}
}

// takeLocked hands messages to the consumers in turn, as their credits allow.
func (g *group) takeLocked(now time.Time) []delivery {
	if !g.wantedLocked() {
		return nil
	}
	g.mu.rules.Connected(g.connectedLocked(now))
	var out []delivery
	g.takeTurnsLocked(func(c *consumer, credit dispatch.Credit) {
		g.mu.runs = g.mu.rules.Take(c.id, credit, now, g.mu.runs[:0])
		out = c.deliverLocked(g.mu.runs, now, out)
	})
	if g.mu.rules.Ready() && !g.mu.rules.Throttled(pullSession) {
		g.notifyPullsLocked()
	}
	return out
}

// unsavedLocked reports whether a checkpoint is due, and how soon. It keeps count of the memory, too.
func (g *group) unsavedLocked() (u urgency, changed bool) {
	if g.mu.settled >= g.h.cfg.CheckpointAcks {
		u, changed = saveBusy, true
	}
	for _, s := range g.mu.shares {
		if s.rules.Unsaved() > 0 { // retries wait for it
			u, changed = saveNow, true
		}
		switch { // transfers do
		case s.rules.LeavingMany():
			u, changed = saveNow, true
		case s.rules.Leaving() > 0:
			u, changed = max(u, saveBusy), true
		}
		changed = changed || s.rules.Changed() || s.finished()
		s.countHeldLocked()
	}
	for _, s := range g.mu.given {
		changed = changed || s.late.changed
	}
	return u, changed
}

// breakerLocked answers what is to be logged outside the mutex: that the breaker of the group opened, or closed.
func (g *group) breakerLocked(now time.Time) (say func()) {
	state, since := g.mu.rules.Breaker()
	open, before := state != dispatch.BreakerClosed, g.mu.opened
	if g.mu.opened = since; open == !before.IsZero() {
		return func() {}
	}
	log := g.h.log.With("queue", g.queuePath, "group", g.name)
	if open {
		return func() {
			log.Warn("the breaker of the group is open: nothing that it delivers succeeds; failed attempts do not count, and a few messages probe until one is acked. Check the workers and the services that they need", "since", since)
		}
	}
	return func() {
		log.Info("the breaker of the group is closed", "after", now.Sub(before).Round(time.Millisecond))
	}
}
