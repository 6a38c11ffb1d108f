package lease

import (
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
)

// Lease is for how long this host may hand out from the lists of shares of one run of a controller without a word from it: a controller that has heard
// nothing of the host for longer may give the shares to others. Acks are taken all the same. Safe for concurrent use.
//
//	       the controller renews                     names its lists
//	holds ──────────────────────▶ holds      ended ──────────────────▶ a new lease, which holds, with the lists that were named
//	  └──OwnerLease without it──▶ ended
//
// A lease that has ended stays so. One whose controller stopped being responsible for some queues is not renewed any more, and holds until its end.
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
