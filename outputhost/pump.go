package outputhost

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/outputhost/retryqueue"
)

// pump does everything an event made possible: hand out, read on, dead-letter, save, set the next deadline. One goroutine at a
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
		var dead []dispatch.Dead
		var parks []dispatch.Parking
		mayGive := g.h.lease.MayGive(now)
		if mayGive {
			g.mu.rules.Tick(now)
			g.orderLocked()
			g.mu.rules.Want(g.wantedLocked() || g.h.elapsed(now)-g.mu.pulled < pullAgain)
			if g.mu.paused == nil {
				out = g.takeLocked(now)
			}
			dead = nextOf(&g.mu.burying, g.mu.rules.TakeDead, deadAtOnce)
			parks = nextOf(&g.mu.parks, g.mu.rules.TakeParking, parksAtOnce)
		}
		reads := g.readLocked()
		urgent, changed := g.unsavedLocked()
		at, ok := g.mu.rules.NextDeadline()
		stall := g.stallLocked(now)
		g.mu.Unlock()
		stall()

		g.h.deadlines.Set(g, at, ok && mayGive) // else what is past due comes up again at once; the beat pumps after a lapse
		for _, d := range out {
			d.send()
		}
		for _, r := range reads {
			r()
		}
		if len(dead) > 0 {
			g.h.tasks.Go(func(ctx context.Context) { g.bury(ctx, began, dead) })
		}
		if len(parks) > 0 {
			g.h.tasks.Go(func(ctx context.Context) { g.park(ctx, began, parks) })
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

// nextOf takes the messages that leave next for a built-in queue; none while earlier ones are on their way.
func nextOf[T any](leaving *bool, take func(most int, out []T) []T, most int) []T {
	if *leaving {
		return nil
	}
	next := take(most, nil)
	*leaving = len(next) > 0
	return next
}

// leave has f hand messages to the publisher of a built-in queue. It waits for room there, which may need what the caller of pump has to do: so it
// has a goroutine of its own. The messages were taken at began, while the lease held: letterTimeout later nothing of them is sent any more, also when this
// process stands still in between.
func (g *group) leave(ctx context.Context, began time.Time, leaving *bool, f func(ctx context.Context)) {
	ctx, cancel := context.WithDeadline(ctx, began.Add(letterTimeout))
	defer cancel()
	f(ctx)
	g.mu.Lock()
	*leaving = false
	g.mu.Unlock()
	g.pump()
}

// bury hands messages to the dead letter queue.
func (g *group) bury(ctx context.Context, began time.Time, dead []dispatch.Dead) {
	g.leave(ctx, began, &g.mu.burying, func(ctx context.Context) {
		g.h.letters.bury(ctx, g, dead)
	})
}

// park hands messages to the retry queue, which is made for the first one.
func (g *group) park(ctx context.Context, began time.Time, parks []dispatch.Parking) {
	g.leave(ctx, began, &g.mu.parks, func(ctx context.Context) {
		err := g.ensureRetry(ctx)
		for _, p := range parks {
			if err != nil { // nothing was appended, whatever became of the queue
				g.h.letters.parked(g, p, core.Errorf(core.CodeUnavailable, "%w", err))
			} else {
				g.h.letters.park(ctx, g, p)
			}
		}
	})
}

// ensureRetry makes the group's retry queue, unless it is there.
func (g *group) ensureRetry(ctx context.Context) error {
	g.mu.Lock()
	record, ready := g.mu.record, g.mu.retryReady
	g.mu.Unlock()
	if ready {
		return nil
	}
	err := retryqueue.Ensure(ctx, g.h.deps.Meta, record, g.h.deps.Now())
	g.mu.Lock()
	g.mu.retryReady = err == nil
	g.mu.Unlock()
	return err
}

// takeLocked hands messages to the consumers in turn, as their credits allow.
func (g *group) takeLocked(now time.Time) []delivery {
	if !g.wantedLocked() {
		return nil
	}
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

// So many messages leave for a built-in queue at once.
const (
	deadAtOnce  = 256
	parksAtOnce = 256
)

// unsavedLocked reports whether a checkpoint is due, and how soon. It keeps count of the memory, too.
func (g *group) unsavedLocked() (u urgency, changed bool) {
	if g.mu.settled >= g.h.cfg.CheckpointAcks {
		u, changed = saveBusy, true
	}
	for _, s := range g.mu.shares {
		if s.rules.Unsaved() > 0 { // retries wait for it
			u, changed = saveNow, true
		}
		switch { // departures do, and dead letters
		case s.rules.PartingMany():
			u, changed = saveNow, true
		case s.rules.Parting() > 0 || s.rules.Intending() > 0:
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

// stallLocked answers what is to be logged outside the mutex: that a stall of the group began, or ended.
func (g *group) stallLocked(now time.Time) (say func()) {
	since, stalled := g.mu.rules.Stalled()
	before := g.mu.stalled
	if g.mu.stalled = since; stalled == !before.IsZero() {
		return func() {}
	}
	log := g.h.log.With("queue", g.queuePath, "group", g.name)
	if stalled {
		return func() {
			log.Warn("nothing that the group hands out succeeds; attempts do not count now, and a few messages probe until one does", "since", since)
		}
	}
	return func() {
		log.Info("the group is not stalled any more", "after", now.Sub(before).Round(time.Millisecond))
	}
}
