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

// reachability knows the other hosts that tell whether this one is cut off: controllers, which give shares away, and
// output hosts, which get them. Membership loses those on the other side of a cut, so they are remembered from before
// it. Safe for concurrent use.
type reachability struct {
	mu struct {
		sync.Mutex
		seen map[core.HostID]*seenHost
	}
}

type seenHost struct {
	membership.Host
	at   time.Time // when membership showed it last
	kept bool      // it would be forgotten, but for its lists
}

// rememberFor is how long a host that membership lost counts. One that it lost before the lease was last renewed is
// forgotten by then.
const rememberFor = 10 * time.Second

func newReachability() *reachability {
	w := &reachability{}
	w.mu.seen = make(map[core.HostID]*seenHost)
	return w
}

// look takes over the membership.
func (w *reachability) look(members membership.Monitor, now time.Time) {
	self := members.Self().ID
	hosts := members.Hosts("")
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range hosts {
		if m.Has("controller") || m.Has("outputhost") && m.ID != self {
			w.mu.seen[m.ID] = &seenHost{Host: m, at: now}
		}
	}
}

// forget ends what is kept of hosts that membership lost long before, but for those that are listed.
func (w *reachability) forget(now time.Time, listed map[core.HostID]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, x := range w.mu.seen {
		switch {
		case now.Sub(x.at) <= rememberFor:
		case listed[id]:
			x.kept = true
		default:
			delete(w.mu.seen, id)
		}
	}
}

// of answers the hosts of a role, those that are kept for their lists, too.
func (w *reachability) of(role string) []membership.Host {
	return w.hosts(func(x *seenHost) bool { return x.Has(role) })
}

func (w *reachability) hosts(is func(*seenHost) bool) (out []membership.Host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.mu.seen {
		if is(x) {
			out = append(out, x.Host)
		}
	}
	return out
}

// renew asks controllers for the shares to stay, and answers what those say that heard that this host is there.
func (x *Leases) renew(ctx context.Context, controllers []membership.Host) map[core.HostID]Renewal {
	var mu sync.Mutex
	renewed := make(map[core.HostID]Renewal, len(controllers))
	each(ctx, controllers, func(ctx context.Context, m membership.Host) bool {
		r, err := x.owner.Renew(ctx, m)
		if err != nil {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		renewed[m.ID] = r
		return true
	})
	return renewed
}

// refuse answers the controllers at whose machines nobody listens, of those that did not renew.
func (x *Leases) refuse(ctx context.Context, controllers []membership.Host, renewed map[core.HostID]Renewal) map[core.HostID]bool {
	silent := slices.DeleteFunc(slices.Clone(controllers), func(m membership.Host) bool {
		_, ok := renewed[m.ID]
		return ok
	})
	var mu sync.Mutex
	refused := make(map[core.HostID]bool, len(silent))
	each(ctx, silent, func(ctx context.Context, m membership.Host) bool {
		if !isRefused(x.dial(ctx, m)) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		refused[m.ID] = true
		return true
	})
	return refused
}

// nobodyGives reports whether the shares are this host's although no controller says so: it is not this host that is
// cut off.
//
//   - There is no other output host.
//   - Or all others answer, so that none of them is with a controller on the other side of a cut. Those in a controller's process share its
//     fate: they count neither way, but somebody has to answer.
//   - Or the machine of each controller does, if only that no process listens there.
func (x *Leases) nobodyGives(ctx context.Context) bool {
	self := x.cfg.Members.Self().ID
	controllers := x.known.hosts(func(m *seenHost) bool { return m.Has("controller") && !m.kept })
	others := slices.DeleteFunc(x.known.of("outputhost"), func(m membership.Host) bool { return m.ID == self })
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
			if len(all) > 0 && each(ctx, all, x.reaches) == len(all) {
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
func (x *Leases) reaches(ctx context.Context, m membership.Host) bool {
	err := x.dial(ctx, m)
	return err == nil || isRefused(err)
}

func (x *Leases) dial(ctx context.Context, m membership.Host) error {
	conn, err := x.owner.Dial(ctx, "tcp", m.Address)
	if err == nil {
		conn.Close()
	}
	return err
}

// isRefused reports whether nobody listens at the machine that was dialed.
func isRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, net.ErrClosed) // the latter: in memory
}
