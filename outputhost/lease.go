package outputhost

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
)

// lease is for how long this host may hand out without a word from a controller: one that has heard nothing of it for longer may give its
// shares to others. A host that is cut off, or stood still, lets it lapse; then nothing is handed out until the shares are confirmed. Acks
// are taken all the same. Safe for concurrent use.
type lease struct {
	base   time.Time    // with a monotonic reading, so that setting the clock ends no lease
	asked  atomic.Int64 // since base, when this host last asked to keep its shares and was heard
	lapsed atomic.Bool  // until the shares are confirmed
	missed atomic.Bool  // the last question had no answer: what is handed out now is likely to come again
}

const (
	beatEvery   = 500 * time.Millisecond
	beatTimeout = 300 * time.Millisecond // of one question to others; a beat asks twice
	// confirmTimeout is for how long nothing is handed out when the controller is dead for all: without one, the shares stay where they are.
	confirmTimeout = 5 * time.Second
	confirmRetry   = 200 * time.Millisecond
)

func newLease(now time.Time) *lease { return &lease{base: now} }

// mayGive reports whether messages may be handed out: the lease holds, and nothing says that it will not be renewed.
func (l *lease) mayGive(now time.Time) bool { return l.holds(now) && !l.missed.Load() }

// holds reports whether the lease goes on. Once it does not, it takes restore to make it.
func (l *lease) holds(now time.Time) bool {
	if l.lapsed.Load() {
		return false
	}
	if now.Sub(l.base)-time.Duration(l.asked.Load()) < dispatch.OwnerLease {
		return true
	}
	l.lapsed.Store(true)
	return false
}

// renew lets a lease that holds go on from when that was asked for.
func (l *lease) renew(asked, now time.Time) bool {
	if !l.holds(now) {
		return false
	}
	l.asked.Store(int64(asked.Sub(l.base)))
	return true
}

// restore begins a lease anew, from when the shares were asked for, unless that is too long ago.
func (l *lease) restore(asked, now time.Time) bool {
	if now.Sub(asked) >= dispatch.OwnerLease { // it stood still once more
		return false
	}
	l.asked.Store(int64(asked.Sub(l.base)))
	l.lapsed.Store(false)
	l.missed.Store(false)
	return true
}

// beat keeps the lease until ctx ends, and has the shares confirmed after each lapse.
func (h *Host) beat(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	w := newWitnesses()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked := h.deps.Now()
		w.look(h.deps.Members, asked)
		heard := h.renewShares(ctx, w.of("controller"))
		if !heard {
			asked = h.deps.Now()
			heard = h.nobodyGives(ctx, w)
		}
		if heard {
			w.heard(asked)
		}
		switch {
		case heard && h.lease.renew(asked, h.deps.Now()):
			if !h.lease.missed.Swap(false) {
				continue
			}
		case h.lease.holds(h.deps.Now()):
			h.lease.missed.Store(true)
			continue
		default:
			h.confirm(ctx, w)
		}
		for _, g := range h.groupList() {
			g.pump()
		}
	}
}

// confirm asks for the list of shares until it is there; where the controller is dead for all, only for a while.
func (h *Host) confirm(ctx context.Context, w *witnesses) {
	h.log.Warn("no word from a controller; nothing is handed out until one confirms the shares of this host", "for", dispatch.OwnerLease)
	h.metrics.lapses.Inc()
	var alone time.Time // since when nobody could give the shares to others; zero: somebody may
	for ctx.Err() == nil {
		asked := h.deps.Now()
		w.look(h.deps.Members, asked)
		err := h.confirmShares(ctx, w.of("controller"))
		if err == nil && h.lease.restore(asked, h.deps.Now()) {
			w.heard(asked)
			h.log.Info("the shares of this host are confirmed")
			return
		}
		asked = h.deps.Now()
		switch {
		case err == nil:
		case !h.nobodyGives(ctx, w):
			alone = time.Time{}
		case alone.IsZero():
			alone = asked
		case asked.Sub(alone) >= confirmTimeout && h.lease.restore(asked, h.deps.Now()):
			w.heard(asked)
			h.log.Warn("there is no controller to confirm the shares of this host; it goes on with those it had", "err", err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(confirmRetry):
		}
	}
}

// confirmShares gives up what a controller says is not this host's any more; new ones follow.
func (h *Host) confirmShares(ctx context.Context, controllers []membership.Host) error {
	err := error(core.Errorf(core.CodeUnavailable, "no controller is known"))
	for _, c := range controllers {
		before := h.version()
		cctx, cancel := context.WithTimeout(ctx, dispatch.OwnerLease)
		list, aerr := h.askController(cctx, c.Address)
		cancel()
		if err = aerr; err != nil {
			continue
		}
		if _, err = h.accept(list, before); err == nil {
			h.relistSoon()
			return nil
		}
	}
	return err
}
