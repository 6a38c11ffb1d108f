package lease

import (
	"context"
	"slices"
	"time"

	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
)

// grant is the leases of one run of a controller. Its fields are the mutex's of Leases.
//
//	confirmed ──the count of hand-overs changes, or the lease ends──▶ a lease that is not confirmed; the one before is left
//	          ◀──────────the controller names its lists──────────────
//
// New lists of the run are under the current lease at once. After one that ended it holds only from when it is
// confirmed. The lists that are not named stay under a lease that is left, until another controller lists their queues.
type grant struct {
	current    *Lease
	left       []*Lease  // that hold still, or have lists
	handovers  uint64    // of the run, as it answered last
	answered   time.Time // when the controller was asked last that answered
	used       time.Time // when a list came last
	confirmed  bool
	confirming bool      // a goroutine has it confirmed
	alone      time.Time // since when nobody could give the shares to others; zero: somebody may
}

func (g *grant) all() []*Lease { return append(slices.Clone(g.left), g.current) }

// keep does for the leases of one run of a controller what follows from a beat.
func (x *Leases) keep(ctx context.Context, g *grant, maker Maker, controller membership.Host, h heard) {
	answer, answered := h.renewed[maker.Controller]
	own := answered && answer.Run == maker.Run // the run itself
	goesOn := h.nobody || h.enough && (h.refused[maker.Controller] || answered && !(own && answer.Held))
	x.mu.Lock()
	now, current := x.owner.Now(), g.current
	x.mu.Unlock()
	ended := !current.Holds(now) && !current.told.Load() && x.owner.Lists(current) > 0

	x.mu.Lock()
	held := g.holding(now)
	changes := own && answer.Handovers != g.handovers
	switch {
	case goesOn:
		for _, l := range held {
			l.renew(h.asked, now)
		}
	case own && answer.Held && !changes:
		g.current.renew(h.asked, now)
	}
	heard := goesOn || own && answer.Held
	var changed []*Lease
	for _, l := range held {
		if l.missed.Swap(!heard) && heard {
			changed = append(changed, l)
		}
	}
	if changes || ended {
		g.begin(x.begin(maker, h.asked), changes && g.current.Holds(now))
	}
	if own {
		g.handovers = answer.Handovers
	}
	if answered {
		g.answered = h.asked
	}
	expired := g.expired(now)
	confirm := !g.confirmed && !g.confirming && answered
	g.confirming = g.confirming || confirm
	current = g.current
	confirmed := g.confirmed
	x.mu.Unlock()

	for _, l := range changed {
		x.owner.Changed(l)
	}
	for _, l := range expired {
		x.warn(l)
	}
	x.forgetLeft(g, now)
	switch {
	case confirmed:
	case confirm:
		x.confirms.Go(func() { x.confirm(ctx, g, current, controller, len(h.renewed) == 1) })
	case !answered:
		x.goOnAlone(g, current, h.nobody, h.asked)
	}
}

// begin leaves the current lease for another one, which is to be confirmed.
func (g *grant) begin(l *Lease, holds bool) {
	g.left, g.confirmed, g.alone = append(g.left, g.current), false, time.Time{}
	l.ended.Store(!holds)
	l.told.Store(!holds)
	g.current = l
}

// expired are the leases that were left and have ended since the last beat.
func (g *grant) expired(now time.Time) (out []*Lease) {
	for _, l := range g.left {
		if !l.Holds(now) && !l.told.Swap(true) {
			out = append(out, l)
		}
	}
	return out
}

// holding are the leases that go on.
func (g *grant) holding(now time.Time) []*Lease {
	return slices.DeleteFunc(g.all(), func(l *Lease) bool { return !l.Holds(now) })
}

// forgetLeft ends the leases that were left, hold no more, and have no lists.
func (x *Leases) forgetLeft(g *grant, now time.Time) {
	x.mu.Lock()
	left := slices.Clone(g.left)
	x.mu.Unlock()
	left = slices.DeleteFunc(left, func(l *Lease) bool { return l.Holds(now) || x.owner.Lists(l) > 0 })
	if len(left) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	g.left = slices.DeleteFunc(g.left, func(l *Lease) bool { return slices.Contains(left, l) })
}

// confirm has a controller name its lists, and lets these go on. only: no other controller answers.
func (x *Leases) confirm(ctx context.Context, g *grant, l *Lease, controller membership.Host, only bool) {
	cctx, cancel := context.WithTimeout(ctx, dispatch.OwnerLease)
	named, err := x.owner.Confirm(cctx, controller)
	cancel()
	if err != nil {
		asked := x.owner.Now()
		x.goOnAlone(g, l, only && ctx.Err() == nil && x.nobodyGives(ctx), asked)
	} else if x.restore(g, l, named) {
		x.cfg.Log.Info("a controller confirmed its lists of shares of this host: delivery continues", "controller", controller.ID, "queues", len(named))
	}
	x.mu.Lock()
	g.confirming = false
	x.mu.Unlock()
}

// restore lets lists that were named go on under the lease, unless queues were handed over meanwhile.
func (x *Leases) restore(g *grant, l *Lease, named Named) bool {
	x.mu.Lock()
	still := g.current == l
	x.mu.Unlock()
	if !still {
		return false
	}
	x.owner.Move(named, l)
	x.mu.Lock()
	ok := g.current == l && l.restore(g.answered, x.owner.Now())
	g.confirmed = g.confirmed || ok
	x.mu.Unlock()
	if ok {
		x.owner.Changed(l)
	}
	return ok
}

// goOnAlone lets all lists of a controller go on without its word, once nobody could give the shares to others for
// confirmTimeout.
func (x *Leases) goOnAlone(g *grant, l *Lease, nobody bool, asked time.Time) {
	x.mu.Lock()
	switch {
	case !nobody:
		g.alone = time.Time{}
	case g.alone.IsZero():
		g.alone = asked
	}
	due := nobody && g.current == l && asked.Sub(g.alone) >= confirmTimeout
	x.mu.Unlock()
	if !due {
		return
	}
	x.owner.Move(nil, l)
	x.mu.Lock()
	ok := g.current == l && l.restore(asked, x.owner.Now())
	g.confirmed = g.confirmed || ok
	x.mu.Unlock()
	if ok && x.owner.Lists(l) > 0 {
		x.cfg.Log.Warn("no controller answers any host for the lists of a controller: this host continues to deliver its shares without a confirmation. Start a controller", "controller", l.maker.Controller)
		x.owner.Changed(l)
	}
}

// keepMinority does for the lease of a minority's lists what follows from a beat. The answers of the run that made them
// count alone: no other controller assigns their shares, whether that run holds a session lease or not.
//
//	begun by a list ──▶ holds ──OwnerLease without its word──▶ ended, and its shares are given up; the next list begins another lease
func (x *Leases) keepMinority(g *grant, maker Maker, h heard) {
	answer, answered := h.renewed[maker.Controller]
	keeps := answered && answer.Run == maker.Run && answer.Minority
	x.mu.Lock()
	now, l := x.owner.Now(), g.current
	if h.asked.Before(l.base.Add(time.Duration(l.asked.Load()))) { // its list came after the question
		x.mu.Unlock()
		return
	}
	if keeps {
		l.renew(h.asked, now)
	}
	again := l.missed.Swap(!keeps) && keeps
	holds := l.Holds(now)
	x.mu.Unlock()
	switch {
	case !holds && x.owner.Lists(l) > 0:
		x.owner.End(l)
	case again:
		x.owner.Changed(l)
	}
}
