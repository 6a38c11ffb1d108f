package controller

import (
	"context"
	"slices"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
)

// A queue that nobody touches is looked at each lookEvery while a group has yet to consume an extent with an end, and
// an output host is there that may, or while a group is being rewound. A queue with open extents alone is looked at
// after lookEvery, and then after twice as long each time, up to idleEvery, and one without work each idleEvery: what
// else changes is told, see touch and tellOfGroup. A process that ends tells nothing more. So all queues are looked at
// within missedEvery after one has ended that tells.
const (
	lookEvery   = 10 * time.Second
	missedEvery = 5 * time.Minute
	idleEvery   = 40 * time.Minute
)

// rests sets when the queue is looked at again after a look; news: the look found some, or the next one may. A look at
// less than what is consumed puts no other look off: else a queue that is touched all the time keeps what is consumed.
func (q *queueShares) rests(now time.Time, news, consumed bool) {
	switch {
	case !q.busy():
		q.rest = idleEvery
	case news || q.rest == 0:
		q.rest = lookEvery
	default:
		q.rest = min(2*q.rest, idleEvery)
	}
	if next := now.Add(q.rest); consumed || q.next.IsZero() || next.Before(q.next) {
		q.next = next
	}
}

// assignLoop does the rounds of assignment, one at a time, until ctx ends. They read metadata, which may be slow; seals
// do not wait for them.
func (h *Host) assignLoop(ctx context.Context) {
	tick := time.NewTicker(h.cfg.ReconcileEvery)
	defer tick.Stop()
	repeat := newRepeat()
	defer repeat.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			repeat.unless(h.assignDue(ctx))
		case <-h.shares.moved:
			repeat.unless(h.assignAll(ctx))
		case <-repeat.timer.C:
			repeat.armed = false
			repeat.unless(h.assignAll(ctx))
		case <-h.shares.wake:
			repeat.unless(h.assignTouched(ctx))
		}
	}
}

// assignTouched looks at the queues that were touched since. As the others do, it reports whether all that it decided
// is written.
func (h *Host) assignTouched(ctx context.Context) bool {
	h.leaveOthers()
	if !h.shares.isComplete() {
		return h.assignAll(ctx)
	}
	touched := h.takeTouched()
	return h.round(ctx, touched, nil, touched, false)
}

// assignDue looks at a part of the queues, so that each has its turn. When more are due than it can look at, chance
// says which.
func (h *Host) assignDue(ctx context.Context) bool {
	h.leaveOthers()
	if !h.shares.isComplete() {
		return h.assignAll(ctx)
	}
	now := h.deps.now()
	h.wakeMissed(now)
	touched, due := h.takeTouched(), h.unseen()
	for id, q := range h.shares.queues {
		if !now.Before(q.next) {
			due = append(due, id)
		}
	}
	return h.round(ctx, touched, due, slices.Concat(touched, due), true)
}

// assignAll gives all shares their owners again: hosts came or went. It does not read queues again that it knows.
func (h *Host) assignAll(ctx context.Context) bool {
	h.leaveOthers()
	h.wakeBehind()
	return h.round(ctx, h.takeTouched(), h.unseen(), h.extents.Queues(), false)
}

// wakeBehind ends the rest of queues whose groups have yet to consume an extent with an end, now that a host may have
// come that does.
func (h *Host) wakeBehind() {
	soon := h.deps.now().Add(lookEvery)
	for _, q := range h.shares.queues {
		if q.next.After(soon) && h.mayDrop(q) {
			q.rest, q.next = lookEvery, soon
		}
	}
}

// takeTouched returns and forgets the queues that were touched. They are looked at more often from now on.
func (h *Host) takeTouched() []core.QueueID {
	out := h.shares.takeTouched()
	for _, id := range out {
		if q := h.shares.queues[id]; q != nil {
			q.rest = 0
		}
	}
	return out
}

// unseen are the queues with extents that no round has looked at since this controller became responsible for them.
func (h *Host) unseen() (out []core.QueueID) {
	for _, id := range h.extents.Queues() {
		if h.shares.queues[id] == nil && h.duties.Responsible(id.ID) {
			out = append(out, id)
		}
	}
	return out
}

func (q *queueShares) busy() bool {
	for _, g := range q.groups {
		if len(g.pending) > 0 {
			return true
		}
	}
	return false
}

// round looks at some queues, see lookAtAll, gives the shares of some owners, and tells the output hosts. written is
// false when shares are without an owner since the metadata did not take it.
func (h *Host) round(ctx context.Context, touched, due, give []core.QueueID, consumed bool) (written bool) {
	l := h.lookAtAll(ctx, touched, due, consumed)
	if ctx.Err() != nil {
		return false
	}
	h.logLooks(l, len(touched)+len(due))
	superseded, err := h.giveOwners(ctx, give)
	switch {
	case err == nil:
		h.givesFail.Succeeded()
	case ctx.Err() == nil && h.givesFail.Failed(time.Now()):
		h.log.Warn("cannot assign shares; they keep their owners, and later rounds try again", "err", err)
	}
	if err == nil && !l.mu.unknown {
		h.shares.setComplete()
	}
	for _, extent := range h.shares.takeReheld() {
		h.shares.Touch(extent, h.groupsWith(extent))
	}
	h.shares.endRound()
	now := h.deps.now()
	h.shares.EndMoves(now)
	h.shares.Forget(func(o catalog.HostRun) bool { return h.hosts.fate(o.Host, o.Run, now) == gone })
	h.metrics.shares.Set(float64(h.shares.Count()))
	h.push()
	h.forget(append(l.mu.dropped, superseded...))
	return err == nil
}

// Pauses before all shares are given again when the metadata did not take them: from the first, doubled up to the
// other.
const (
	minRepeat = 50 * time.Millisecond
	maxRepeat = 2 * time.Second
)

// repeat has something done again after a pause that grows while it fails. One goroutine uses it.
type repeat struct {
	timer *time.Timer
	armed bool
	pause time.Duration
}

func newRepeat() *repeat {
	r := &repeat{timer: time.NewTimer(maxRepeat)}
	r.timer.Stop()
	return r
}

// unless done, the timer fires after a pause.
func (r *repeat) unless(done bool) {
	switch {
	case done && !r.armed:
		r.pause = 0
	case !done && !r.armed:
		r.pause = min(max(2*r.pause, minRepeat), maxRepeat)
		r.timer.Reset(r.pause)
		r.armed = true
	}
}
