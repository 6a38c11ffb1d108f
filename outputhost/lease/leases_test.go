package lease

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
)

// state of a fake controller.
type state int

const (
	renews state = iota
	refuses
	silent
	hangs // its machine takes connections
	lost  // it renews without its session lease
	again // another run of it renews
)

// owner is a host with one list of each controller.
type owner struct {
	Owner
	mu struct {
		sync.Mutex
		states    map[core.HostID]state
		handovers map[core.HostID]uint64
		names     map[core.HostID]bool // its list
		under     map[core.HostID]*Lease
		asked     int  // how often lists were to be confirmed
		ends      int  // how often the lists of a minority were given up
		minority  bool // it keeps lists of a minority
	}
}

var (
	errAway = errors.New("away")
	queue   = core.QueueID{ID: core.ID{1}}
)

func (o *owner) Now() time.Time { return time.Now() }

func (o *owner) Renew(_ context.Context, c membership.Host) (r Renewal, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r = Renewal{Handovers: o.mu.handovers[c.ID], Held: true, Minority: o.mu.minority}
	switch o.mu.states[c.ID] {
	case renews:
	case lost:
		r.Held = false
	case again:
		r.Run.ID[0] = 1
	default:
		return r, errAway
	}
	return r, nil
}

func (o *owner) Confirm(_ context.Context, c membership.Host) (Named, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.asked++
	switch {
	case o.mu.states[c.ID] != renews:
		return nil, errAway
	case o.mu.names[c.ID]:
		return Named{queue: {Controller: c.ID}}, nil
	}
	return Named{}, nil
}

func (o *owner) Move(named Named, to *Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := named[queue]; ok || named == nil {
		o.mu.under[to.Maker().Controller] = to
	}
}

func (o *owner) Lists(l *Lease) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, under := range o.mu.under {
		if under == l {
			n++
		}
	}
	return n
}

func (o *owner) Dial(_ context.Context, _, addr string) (net.Conn, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch o.mu.states[core.HostID(addr)] {
	case refuses:
		return nil, syscall.ECONNREFUSED
	case silent:
		return nil, errAway
	}
	near, far := net.Pipe()
	far.Close()
	return near, nil
}

func (o *owner) Changed(*Lease) {}

func (o *owner) End(l *Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.ends++
	delete(o.mu.under, l.Maker().Controller)
}

func (o *owner) set(c core.HostID, s state) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.states[c] = s
}

// gives reports whether the list of a controller is delivered.
func (o *owner) gives(c core.HostID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.under[c].MayGive(time.Now())
}

// series counts the controllers of which leases expired.
func series(t *testing.T, lapses *prometheus.CounterVec) (n int) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(lapses)
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		n += len(family.GetMetric())
	}
	return n
}

// bubble runs f with leases of controllers a, b and c, each with a list, and another output host.
func bubble(t *testing.T, f func(t *testing.T, o *owner, lapses *prometheus.CounterVec)) {
	synctest.Test(t, func(t *testing.T) {
		self := membership.Host{ID: "self", Roles: []string{"outputhost"}, Address: "self"}
		members, err := static.New(self)
		if err != nil {
			t.Fatal(err)
		}
		all := []membership.Host{self, {ID: "out", Roles: []string{"outputhost"}, Address: "out"}}
		o := &owner{}
		o.mu.states, o.mu.handovers = make(map[core.HostID]state), make(map[core.HostID]uint64)
		o.mu.names, o.mu.under = make(map[core.HostID]bool), make(map[core.HostID]*Lease)
		lapses := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapses"}, []string{"controller"})
		x := New(Config{Members: members, Log: slog.New(slog.DiscardHandler), Lapses: lapses}, o)
		for _, id := range []core.HostID{"a", "b", "c"} {
			all = append(all, membership.Host{ID: id, Roles: []string{"controller"}, Address: string(id)})
			o.mu.names[id], o.mu.under[id] = true, x.Of(Maker{Controller: id})
		}
		if err := members.Set(all); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { x.Run(ctx) })
		defer running.Wait()
		defer cancel()
		time.Sleep(3 * time.Second)
		f(t, o, lapses)
	})
}

// TestLeases_WhoKeepsAList goes through what controllers do, and which lists are delivered after that for long.
func TestLeases_WhoKeepsAList(t *testing.T) {
	for _, c := range []struct {
		name string
		is   [3]state // a, b and c
		out  state    // of the other output host
		want string   // whose lists are delivered
	}{
		{"all renew", [3]state{renews, renews, renews}, renews, "abc"},
		{"one is silent", [3]state{silent, renews, renews}, renews, "bc"},
		{"one hangs", [3]state{hangs, renews, renews}, renews, "bc"},
		{"one refuses", [3]state{refuses, renews, renews}, renews, "abc"},
		{"one refuses, one is silent", [3]state{refuses, silent, renews}, renews, "c"},
		{"one refuses, one hangs", [3]state{refuses, hangs, renews}, renews, "c"},
		{"two refuse", [3]state{refuses, refuses, renews}, renews, "abc"},
		{"one has lost its session lease", [3]state{lost, renews, renews}, renews, "abc"},
		{"one has lost its session lease, one is silent", [3]state{lost, silent, renews}, renews, "c"},
		{"another run of one renews", [3]state{again, renews, renews}, renews, "abc"},
		{"another run of one renews, one hangs", [3]state{again, hangs, renews}, renews, "c"},
		{"none holds a session lease", [3]state{lost, lost, lost}, renews, "abc"},
		{"all refuse", [3]state{refuses, refuses, refuses}, renews, "abc"},
		{"all refuse, and the other host is silent", [3]state{refuses, refuses, refuses}, silent, "abc"},
		{"all hang", [3]state{hangs, hangs, hangs}, renews, "abc"},
		{"all are silent, but the other host is there", [3]state{silent, silent, silent}, renews, "abc"},
		{"all are silent", [3]state{silent, silent, silent}, silent, ""},
		{"two refuse, one is silent, and so is the other host", [3]state{refuses, refuses, silent}, silent, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, o *owner, lapses *prometheus.CounterVec) {
				for i, id := range []core.HostID{"a", "b", "c"} {
					o.set(id, c.is[i])
				}
				o.set("out", c.out)
				time.Sleep(dispatch.OwnerLease)
				for range 200 {
					got := ""
					for _, id := range []core.HostID{"a", "b", "c"} {
						if o.gives(id) {
							got += string(id)
						}
					}
					if got != c.want {
						t.Fatalf("the lists of %q are delivered, want %q", got, c.want)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if n := series(t, lapses); n != 3-len(c.want) {
					t.Errorf("%d leases expired, want %d", n, 3-len(c.want))
				}
				for _, id := range []core.HostID{"a", "b", "c"} {
					o.set(id, renews)
				}
				time.Sleep(2 * beatEvery)
				for _, id := range []core.HostID{"a", "b", "c"} {
					if !o.gives(id) {
						t.Errorf("the list of %s is not delivered though it renews and names it", id)
					}
				}
			})
		})
	}
}

// TestLeases_CountOfHandoversChanges: a controller is asked once for its lists. One that it does not name ends with the
// lease of before.
func TestLeases_CountOfHandoversChanges(t *testing.T) {
	bubble(t, func(t *testing.T, o *owner, _ *prometheus.CounterVec) {
		o.mu.Lock()
		o.mu.handovers["a"], o.mu.handovers["b"], o.mu.names["a"] = 1, 1, false
		asked := o.mu.asked
		o.mu.Unlock()
		began, last := time.Now(), time.Duration(0)
		for range 100 {
			if o.gives("a") {
				last = time.Since(began)
			}
			if !o.gives("b") || !o.gives("c") {
				t.Fatalf("after %s a list is not delivered that was named, or not asked for", time.Since(began))
			}
			time.Sleep(50 * time.Millisecond)
		}
		if last > dispatch.OwnerLease || last < dispatch.OwnerLease-beatEvery-50*time.Millisecond {
			t.Errorf("the list that was handed over is delivered for %s, want %s from the last renewal before", last, dispatch.OwnerLease)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.mu.asked != asked+2 {
			t.Errorf("controllers were asked %d times for their lists, want once each", o.mu.asked-asked)
		}
	})
}

// TestLeases_CountChangesInALapse: what the controller does not name does not come back with its lease.
func TestLeases_CountChangesInALapse(t *testing.T) {
	bubble(t, func(t *testing.T, o *owner, _ *prometheus.CounterVec) {
		o.set("a", hangs)
		time.Sleep(5 * time.Second)
		o.mu.Lock()
		o.mu.states["a"], o.mu.handovers["a"], o.mu.names["a"] = renews, 1, false
		o.mu.Unlock()
		for range 100 {
			if o.gives("a") {
				t.Fatal("a list is delivered that its controller does not name any more")
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}
