package lease

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// reachability knows the other hosts that tell whether this one is cut off: controllers, which give shares away, and output hosts, which get
// them. Membership loses those on the other side of a cut, so they are remembered from before it. One goroutine uses it.
type reachability struct {
	seen map[core.HostID]*seenHost
}

type seenHost struct {
	membership.Host
	at time.Time // when membership showed it last
}

// rememberFor is how long a host that membership lost counts. One that it lost before the lease was last renewed is forgotten by then.
const rememberFor = 10 * time.Second

func newReachability() *reachability { return &reachability{seen: make(map[core.HostID]*seenHost)} }

// look takes over the membership.
func (w *reachability) look(members membership.Monitor, now time.Time) {
	self := members.Self().ID
	for _, m := range members.Hosts("") {
		if m.Has("controller") || m.Has("outputhost") && m.ID != self {
			w.seen[m.ID] = &seenHost{m, now}
		}
	}
}

// heard forgets those that were lost long before: the lease has just been renewed without them.
func (w *reachability) heard(now time.Time) {
	for id, x := range w.seen {
		if now.Sub(x.at) > rememberFor {
			delete(w.seen, id)
		}
	}
}

func (w *reachability) of(role string) (out []membership.Host) {
	for _, x := range w.seen {
		if x.Has(role) {
			out = append(out, x.Host)
		}
	}
	return out
}

// renewedBy reports whether a controller heard that this host is there.
func (l *Lease) renewedBy(ctx context.Context, controllers []membership.Host) bool {
	return each(ctx, controllers, func(ctx context.Context, m membership.Host) bool { return l.owner.Renew(ctx, m) == nil }) > 0
}

// nobodyGives reports whether the shares are this host's although no controller says so: it is not this host that is cut off.
//
//   - There is no other output host.
//   - Or all others answer, so that none of them is with a controller on the other side of a cut. Those in a controller's process share its
//     fate: they count neither way, but somebody has to answer.
//   - Or the machine of each controller does, if only that no process listens there.
func (l *Lease) nobodyGives(ctx context.Context, w *reachability) bool {
	self := l.cfg.Members.Self().ID
	controllers := w.of("controller")
	others := slices.DeleteFunc(w.of("outputhost"), func(m membership.Host) bool { return m.ID == self })
	if len(others) == 0 {
		return true
	}
	others = slices.DeleteFunc(others, func(m membership.Host) bool {
		return slices.ContainsFunc(controllers, func(c membership.Host) bool { return c.Address == m.Address })
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var yes atomic.Bool
	var wg sync.WaitGroup
	for _, all := range [][]membership.Host{others, controllers} {
		wg.Go(func() {
			if len(all) > 0 && each(ctx, all, l.reaches) == len(all) {
				yes.Store(true)
				cancel() // the others need not answer
			}
		})
	}
	wg.Wait()
	return yes.Load()
}

// each asks hosts side by side, and counts those for which f is true.
func each(ctx context.Context, hosts []membership.Host, f func(ctx context.Context, m membership.Host) bool) int {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	var n atomic.Int64
	var wg sync.WaitGroup
	for _, m := range hosts {
		wg.Go(func() {
			if f(ctx, m) {
				n.Add(1)
			}
		})
	}
	wg.Wait()
	return int(n.Load())
}

// reaches reports whether packets come and go between this host and that machine: a connection is made, or refused.
func (l *Lease) reaches(ctx context.Context, m membership.Host) bool {
	conn, err := l.owner.Dial(ctx, "tcp", m.Address)
	if err == nil {
		conn.Close()
	}
	return err == nil || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, net.ErrClosed) // the latter: in memory
}
