package outputhost

import (
	"context"
	"math"
	"time"

	"github.com/columbamq/columba/core/dispatch"
)

// work is what a pump has found to do, outside the group's mutex.
type work struct {
	began    time.Time
	out      []delivery
	closing  []*consumer // their close is to be answered, after out
	leaving  [dispatch.Destinations][]dispatch.Transfer
	reads    []func()
	breaker  func()
	deadline time.Time // to be set; zero: it stays as it is
	forget   bool      // the deadline is to be taken back
	save     bool      // the saver is to be told, by urgency
	urgency  urgency
	again    bool // there is more to hand out
}

// roundsAtOnce bounds how often a caller of pump goes round with the group. The caller may serve other groups, too: it
// has the deadlines, the checkpoints or the leases of all of them, or reads what a store sends. A group to which events
// come all the time goes on with a goroutine of its own.
const roundsAtOnce = 16

// pump does everything an event made possible: hand out, read on, transfer, save, set the next deadline. One goroutine
// at a time pumps a group; an event that comes meanwhile makes it go round once more. It looks at the shares that
// changed since the last time, and at the consumers that are handed something: its cost does not grow with the others.
func (g *group) pump() {
	g.mu.Lock()
	if g.mu.pumping {
		g.mu.again = true
		g.mu.Unlock()
		return
	}
	g.mu.pumping = true
	g.mu.Unlock()
	if g.goRound(roundsAtOnce) || g.h.tasks.Go(func(context.Context) { g.goRound(math.MaxInt) }) {
		return
	}
	g.goRound(math.MaxInt) // the host is stopping
}

// goRound pumps at most so many times, and reports whether nothing is left to be done.
func (g *group) goRound(most int) (over bool) {
	g.mu.Lock()
	for range most {
		g.mu.again = false
		var w work
		g.findLocked(&w, g.h.deps.Now())
		g.mu.Unlock()
		g.do(&w)
		g.mu.Lock()
		if !g.mu.again && !w.again {
			g.mu.pumping = false
			g.mu.Unlock()
			return true
		}
	}
	g.mu.Unlock()
	return false
}

// findLocked applies what is due and finds out what there is to do.
func (g *group) findLocked(w *work, now time.Time) {
	mayGive := g.mayGive(now)
	if mayGive {
		g.mu.rules.Tick(now)
		g.takeChangedLocked()
		g.orderLocked()
		g.countCreditsLocked(now)
		g.mu.rules.Want(g.demandLocked(), g.wantedLocked() || g.h.elapsed(now)-g.mu.pulled < pullAgain)
		if g.mu.paused == nil {
			w.out = g.takeLocked(now)
		}
		g.leaveLocked(w)
	}
	g.takeChangedLocked()
	if x := g.mu.credits; x != nil {
		w.closing, x.closing = x.closing, nil
	}
	w.reads = g.readLocked()
	w.save, w.urgency = g.unsavedLocked()
	g.forgetTouchedLocked()
	g.deadlineLocked(w, mayGive, now)
	w.breaker = g.breakerLocked(now)
	g.noteOpeningLocked()
	w.again = mayGive && g.mu.reorder || len(w.out) > 0 && g.mu.rules.Ready() && g.demandLocked().Messages > 0
}

// do what was found.
func (g *group) do(w *work) {
	w.breaker()
	switch {
	case w.forget:
		g.h.deadlines.Set(g, time.Time{}, false)
	case !w.deadline.IsZero():
		g.h.deadlines.Set(g, w.deadline, true)
	}
	for i := range w.out {
		w.out[i].send()
	}
	for _, c := range w.closing {
		c.answerClose()
	}
	for _, r := range w.reads {
		r()
	}
	for _, some := range w.leaving {
		if len(some) > 0 {
			g.h.mover.Begin(leaver{g}, w.began, some)
		}
	}
	if w.save {
		g.h.saver.note(g, w.urgency)
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
	if g.mu.pulls.number() > 0 && g.mu.rules.Ready() && !g.mu.rules.Throttled(pullSession) && g.mayPullLocked() > 0 {
		g.mu.pulls.wakeNext()
	}
	return out
}

// leaveLocked takes the messages that are to be transferred now; none while the host drains, as its last checkpoints
// say of the others that they were not appended.
func (g *group) leaveLocked(w *work) {
	if g.h.draining.Load() {
		return
	}
	for to := range dispatch.Destination(dispatch.Destinations) {
		if !g.mu.rules.TransfersWait(to) {
			continue
		}
		if w.began.IsZero() {
			w.began = time.Now()
		}
		w.leaving[to] = g.outbox.Next(g.mu.rules, to)
	}
}

// forgetTouchedLocked ends the look at the shares that changed, but for those whose reading waits for memory.
func (g *group) forgetTouchedLocked() {
	at := &g.mu.touched
	for s := *at; s != nil; s = *at {
		if s.touched = s.starved && !s.removed; s.touched {
			at = &s.nextTouched
			continue
		}
		*at, s.nextTouched = s.nextTouched, nil
	}
}

// lookAtAll looks at all shares and consumers, whatever the group was told: then nothing is overlooked for long, also
// while no event comes.
func (g *group) lookAtAll() {
	g.mu.Lock()
	for _, s := range g.mu.shares {
		g.touchLocked(s)
	}
	if g.mu.credits != nil {
		g.mu.credits.most = 0
	}
	idle := len(g.mu.shares) == 0
	g.mu.Unlock()
	if !idle {
		g.pump()
	}
}

// unsavedLocked notes which of the shares that changed are to be saved, and how soon, and reports what the saver is to
// be told, if it does not know.
func (g *group) unsavedLocked() (tell bool, u urgency) {
	for s := g.mu.touched; s != nil; s = s.nextTouched {
		s.countHeldLocked()
		s.noteUnsavedLocked()
	}
	return g.tellSaverLocked()
}

// deadlineLocked finds out whether another deadline is to be set than the one that is. One that comes too early costs
// one pump, so a later one replaces it only then: while messages come and go, their locks move with each.
func (g *group) deadlineLocked(w *work, mayGive bool, now time.Time) {
	at, ok := g.mu.rules.NextDeadline()
	if g.mu.deadline <= g.h.elapsed(now) { // it has come
		g.mu.deadline = 0
	}
	switch {
	case !ok || !mayGive: // else what is past due comes up again at once; the beat pumps after a lapse
		if len(g.mu.shares) == 0 && g.mu.deadline != 0 {
			g.mu.deadline, w.forget = 0, true
		}
	case g.mu.deadline == 0 || g.h.elapsed(at) < g.mu.deadline:
		g.mu.deadline, w.deadline = max(g.h.elapsed(at), 1), at
	}
}

// breakerTold is how long a breaker is open before the log says so: a few failures in a row open one for a moment.
const breakerTold = time.Second

// breakerLocked answers what is to be logged outside the mutex: that the breaker of the group is open for breakerTold,
// or closed after that.
func (g *group) breakerLocked(now time.Time) (say func()) {
	state, since := g.mu.rules.Breaker()
	open, before := state != dispatch.BreakerClosed, g.mu.opened
	if open == (before != 0) || open && now.Sub(since) < breakerTold {
		return func() {}
	}
	g.mu.opened = 0
	log := g.h.log.With("queue", g.queuePath, "group", g.name)
	if open {
		g.mu.opened = max(g.h.elapsed(since), 1)
		return func() {
			log.Warn("the circuit breaker of the group opened, because no delivery succeeds: the group gets a few probes until one is acked, and failed attempts are not counted. Check the consumers of the group and the services that they need", "since", since)
		}
	}
	return func() {
		log.Info("the circuit breaker of the group closed", "after", (g.h.elapsed(now) - before).Round(time.Millisecond))
	}
}
