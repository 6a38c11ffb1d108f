// Package lease owns the delivery lease of an output host: the host may deliver as long as its shares cannot have been
// given to others.
package lease

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/membership"
)

// Owner is the output host, as far as its lease needs it.
type Owner interface {
	Now() time.Time
	// Renew asks a controller for the shares to stay.
	Renew(ctx context.Context, controller membership.Host) error
	// Confirm has one of the controllers say which shares are the host's, and gives up the others.
	Confirm(ctx context.Context, controllers []membership.Host) error
	Dial(ctx context.Context, network, addr string) (net.Conn, error)
	// Changed is told when it may be that messages can be handed out, or not any more.
	Changed()
}

// Config of a Lease.
type Config struct {
	Members membership.Monitor
	Log     *slog.Logger
	Lapses  prometheus.Counter
}

// Lease is for how long this host may hand out without a word from a controller: one that has heard nothing of it for longer may give its
// shares to others. A host that is cut off, or stood still, lets it lapse; then nothing is handed out until the shares are confirmed. Acks
// are taken all the same. Safe for concurrent use.
type Lease struct {
	cfg     Config
	owner   Owner
	base    time.Time    // with a monotonic reading, so that setting the clock ends no lease
	asked   atomic.Int64 // since base, when this host last asked to keep its shares and was heard
	expired atomic.Bool  // until the shares are confirmed
	missed  atomic.Bool  // the last question had no answer: what is handed out now is likely to come again
}

const (
	beatEvery   = 500 * time.Millisecond
	beatTimeout = 300 * time.Millisecond // of one question to others; a beat asks twice
	// confirmTimeout is for how long nothing is handed out when the controller is dead for all: without one, the shares stay where they are.
	confirmTimeout = 5 * time.Second
	confirmRetry   = 200 * time.Millisecond
)

// New lease, which begins now; it does no I/O.
func New(cfg Config, owner Owner) *Lease { return &Lease{cfg: cfg, owner: owner, base: owner.Now()} }

// MayGive reports whether messages may be handed out: the lease holds, and nothing says that it will not be renewed.
func (l *Lease) MayGive(now time.Time) bool { return l.Holds(now) && !l.missed.Load() }

// Holds reports whether the lease goes on. Once it does not, it takes restore to make it.
func (l *Lease) Holds(now time.Time) bool {
	if l.expired.Load() {
		return false
	}
	if now.Sub(l.base)-time.Duration(l.asked.Load()) < dispatch.OwnerLease {
		return true
	}
	l.expired.Store(true)
	return false
}

// renew lets a lease that holds go on from when that was asked for.
func (l *Lease) renew(asked, now time.Time) bool {
	if !l.Holds(now) {
		return false
	}
	l.asked.Store(int64(asked.Sub(l.base)))
	return true
}

// restore begins a lease anew, from when the shares were asked for, unless that is too long ago.
func (l *Lease) restore(asked, now time.Time) bool {
	if now.Sub(asked) >= dispatch.OwnerLease { // it stood still once more
		return false
	}
	l.asked.Store(int64(asked.Sub(l.base)))
	l.expired.Store(false)
	l.missed.Store(false)
	return true
}

// Run keeps the lease until ctx ends, and has the shares confirmed after each lapse.
func (l *Lease) Run(ctx context.Context) {
	w := newReachability()
	lifecycle.Every(ctx, beatEvery, func(ctx context.Context) { l.beat(ctx, w) })
}

// beat renews the lease, or has the shares confirmed after it has expired.
func (l *Lease) beat(ctx context.Context, w *reachability) {
	asked := l.owner.Now()
	w.look(l.cfg.Members, asked)
	heard := l.renewedBy(ctx, w.of("controller"))
	if !heard {
		asked = l.owner.Now()
		heard = l.nobodyGives(ctx, w)
	}
	if heard {
		w.heard(asked)
	}
	switch {
	case heard && l.renew(asked, l.owner.Now()):
		if !l.missed.Swap(false) {
			return
		}
	case l.Holds(l.owner.Now()):
		l.missed.Store(true)
		return
	default:
		l.confirm(ctx, w)
	}
	l.owner.Changed()
}

// confirm has the lists of shares compared until that succeeds; where the controller is dead for all, only for a while.
func (l *Lease) confirm(ctx context.Context, w *reachability) {
	l.cfg.Log.Warn("the delivery lease expired, because no controller answered: this host delivers nothing until a controller confirms its shares. Check the controllers and the network", "for", dispatch.OwnerLease)
	l.cfg.Lapses.Inc()
	var alone time.Time // since when nobody could give the shares to others; zero: somebody may
	for ctx.Err() == nil {
		asked := l.owner.Now()
		w.look(l.cfg.Members, asked)
		err := l.owner.Confirm(ctx, w.of("controller"))
		if err == nil && l.restore(asked, l.owner.Now()) {
			w.heard(asked)
			l.cfg.Log.Info("a controller confirmed the shares of this host: delivery continues")
			return
		}
		asked = l.owner.Now()
		switch {
		case err == nil:
		case !l.nobodyGives(ctx, w):
			alone = time.Time{}
		case alone.IsZero():
			alone = asked
		case asked.Sub(alone) >= confirmTimeout && l.restore(asked, l.owner.Now()):
			w.heard(asked)
			l.cfg.Log.Warn("no controller is reachable from any host: this host continues to deliver its shares without a confirmation. Start a controller", "err", err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(confirmRetry):
		}
	}
}
