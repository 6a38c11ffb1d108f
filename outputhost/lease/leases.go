// Package lease owns the delivery leases of an output host: the host may deliver as long as its shares cannot have been
// given to others.
package lease

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/membership"
)

// Owner is the output host, as far as its leases need it.
type Owner interface {
	Now() time.Time
	// Renew asks a controller for the shares to stay.
	Renew(ctx context.Context, controller membership.Host) (Renewal, error)
	// Confirm has a controller name its lists of this host's shares, and gives up what they lack.
	Confirm(ctx context.Context, controller membership.Host) (Named, error)
	// Move puts lists of the lease's maker under the lease: those that are named, and nil names all.
	Move(named Named, to *Lease)
	// End gives up the shares of the lists under a lease of a minority, which has ended.
	End(l *Lease)
	// Lists counts the lists under a lease.
	Lists(l *Lease) int
	Dial(ctx context.Context, network, addr string) (net.Conn, error)
	// Changed is told when it may be that messages under a lease can be handed out again.
	Changed(l *Lease)
}

// Renewal is what a controller answers that heard a host. It moves nothing from the host for dispatch.OwnerGone.
type Renewal struct {
	Handovers uint64     // how often it stopped being responsible for some queues
	Held      bool       // it holds its session lease: nobody else moves the shares of its queues
	Run       core.RunID // of the controller
	Minority  bool       // the host may go on with its lists of extents that it made without a majority of the metadata
}

// Named is the lists of shares that a controller has named, by queue.
type Named map[core.QueueID]core.ListVersion

// Config of Leases.
type Config struct {
	Members membership.Monitor
	Log     *slog.Logger
	Lapses  *prometheus.CounterVec // by controller
}

// Leases are those of a host, one for each run of a controller: it alone gives away the shares of its lists. A host
// that is cut off, or stood still, lets them end; then nothing is handed out until the lists are confirmed. Safe for
// concurrent use.
type Leases struct {
	cfg      Config
	owner    Owner
	base     time.Time
	known    *reachability
	confirms sync.WaitGroup
	mu       struct {
		sync.Mutex
		granted map[Maker]*grant
	}
}

const (
	beatEvery   = 500 * time.Millisecond
	beatTimeout = 300 * time.Millisecond // of one question to others; a beat asks twice
	// confirmTimeout is for how long nothing is handed out when the controller is dead for all: without one, the shares
	// stay where they are.
	confirmTimeout = 5 * time.Second
)

// New makes leases; it does no I/O.
func New(cfg Config, owner Owner) *Leases {
	x := &Leases{cfg: cfg, owner: owner, base: owner.Now(), known: newReachability()}
	x.mu.granted = make(map[Maker]*grant)
	return x
}

// Of is the lease of a run of a controller that has just made a list. The first one begins now.
func (x *Leases) Of(maker Maker) *Lease {
	now := x.owner.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	g := x.mu.granted[maker]
	if g == nil {
		g = &grant{current: x.begin(maker, now), confirmed: true}
		x.mu.granted[maker] = g
	}
	if maker.Minority && !g.current.Holds(now) {
		g.current = x.begin(maker, now)
	}
	g.used = now
	return g.current
}

func (x *Leases) begin(maker Maker, asked time.Time) *Lease {
	l := &Lease{maker: maker, base: x.base}
	l.asked.Store(int64(asked.Sub(x.base)))
	return l
}

// Run keeps the leases until ctx ends, and has lists confirmed after a lease has ended.
func (x *Leases) Run(ctx context.Context) {
	defer x.confirms.Wait()
	lifecycle.Every(ctx, beatEvery, x.beat)
}

// heard is what controllers answered in one beat.
type heard struct {
	asked   time.Time
	renewed map[core.HostID]Renewal
	refused map[core.HostID]bool // nobody listens there
	enough  bool                 // all controllers renewed, or refused, and one renewed
	nobody  bool                 // no controller answers, and it is not this host that is cut off
}

// beat renews the leases.
//
//  1. The run of a controller that made lists answers, and holds its session lease: it renews its own.
//  2. The run does not hold it, or nobody listens at its machine, or another run answers in its place. Then the renewals of all controllers that
//     are there are enough: none of them moves anything from this host for dispatch.OwnerGone, whatever it takes over.
//  3. If no controller answers, all leases go on if nobodyGives.
func (x *Leases) beat(ctx context.Context) {
	h := heard{asked: x.owner.Now()}
	x.known.look(x.cfg.Members, h.asked)
	controllers := x.known.of("controller")
	h.renewed = x.renew(ctx, controllers)
	if len(h.renewed) == 0 {
		h.asked = x.owner.Now()
		h.nobody = x.nobodyGives(ctx)
	} else {
		h.refused = x.refuse(ctx, controllers, h.renewed)
		h.enough = len(h.renewed)+len(h.refused) == len(controllers)
	}
	if ctx.Err() != nil {
		return
	}
	byID := make(map[core.HostID]membership.Host, len(controllers))
	for _, c := range controllers {
		byID[c.ID] = c
	}
	x.mu.Lock()
	all := maps.Clone(x.mu.granted)
	x.mu.Unlock()
	for maker, g := range all {
		if maker.Minority {
			x.keepMinority(g, maker, h)
			continue
		}
		x.keep(ctx, g, maker, byID[maker.Controller], h)
	}
	x.forget(all, h)
}

// unusedFor is how long leases without lists are kept.
const unusedFor = time.Minute

// forget ends what is kept of leases without lists, and, once leases have been renewed without them, of hosts that were
// lost long before. A controller whose lists are here is remembered: only its own machine can say that it does not run.
func (x *Leases) forget(all map[Maker]*grant, h heard) {
	listed := make(map[core.HostID]bool)
	for maker, g := range all {
		if x.listsOf(g) > 0 {
			listed[maker.Controller] = true
			continue
		}
		x.mu.Lock()
		if !g.confirming && h.asked.Sub(g.used) > unusedFor {
			delete(x.mu.granted, maker)
		}
		x.mu.Unlock()
	}
	if len(h.renewed) > 0 || h.nobody {
		x.known.forget(h.asked, listed)
	}
}

// listsOf counts the lists under the leases of one controller.
func (x *Leases) listsOf(g *grant) (n int) {
	x.mu.Lock()
	leases := g.all()
	x.mu.Unlock()
	for _, l := range leases {
		n += x.owner.Lists(l)
	}
	return n
}

// warn says that a lease with lists ended.
func (x *Leases) warn(l *Lease) {
	n := x.owner.Lists(l)
	if n == 0 {
		return
	}
	x.cfg.Log.Warn("the delivery lease of a controller expired, because it did not answer, or is not responsible for these queues any more: this host delivers nothing of the queues until a controller confirms its shares of them. Check the controllers and the network",
		"controller", l.maker.Controller, "queues", n, "for", dispatch.OwnerLease)
	x.cfg.Lapses.WithLabelValues(string(l.maker.Controller)).Inc()
}

// Lease is for how long this host may hand out from the lists of shares of one run of a controller without a word from
// it: a controller that has heard nothing of the host for longer may give the shares to others. Acks are taken all the
// same. Safe for concurrent use.
//
//	       the controller renews                     names its lists
//	holds ──────────────────────▶ holds      ended ──────────────────▶ a new lease, which holds, with the lists that were named
//	  └──OwnerLease without it──▶ ended
//
// A lease that has ended stays so. One whose controller stopped being responsible for some queues is not renewed any
// more, and holds until its end.
type Lease struct {
	maker  Maker
	base   time.Time    // with a monotonic reading, so that setting the clock ends no lease
	asked  atomic.Int64 // since base, when this host last asked to keep its shares and was heard
	ended  atomic.Bool
	missed atomic.Bool // the last question had no answer: what is handed out now is likely to come again
	told   atomic.Bool // that it has ended, or has not begun
}

// Maker is a run of a controller, which makes lists of shares.
type Maker struct {
	Controller core.HostID
	Run        core.RunID
	Minority   bool // its lists of extents that it made without a majority of the metadata
}

// MakerOf a list.
func MakerOf(v core.ListVersion) Maker { return Maker{Controller: v.Controller, Run: v.Run} }

// Maker is whose lists are under the lease.
func (l *Lease) Maker() Maker { return l.maker }

// MayGive reports whether messages may be handed out: the lease holds, and nothing says that it will not be renewed.
func (l *Lease) MayGive(now time.Time) bool { return l.Holds(now) && !l.missed.Load() }

// Holds reports whether the lease goes on.
func (l *Lease) Holds(now time.Time) bool {
	if l.ended.Load() {
		return false
	}
	if now.Sub(l.base)-time.Duration(l.asked.Load()) < dispatch.OwnerLease {
		return true
	}
	l.ended.Store(true)
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
	l.ended.Store(false)
	l.missed.Store(false)
	l.told.Store(false)
	return true
}
