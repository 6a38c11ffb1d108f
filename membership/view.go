package membership

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
)

// View is the current list of a Monitor, with the subscribers of changes. The zero View has no hosts. Safe for
// concurrent use.
type View struct {
	mu struct {
		sync.Mutex
		hosts []Host // sorted by id; replaced, never changed in place
		gone  map[core.HostID]Gone
		wakes map[*func()]struct{}
	}
}

// Replace makes hosts, sorted by id and the view's from now on, the view, and wakes those who asked for changes, on the
// caller's goroutine. It asks why of each host that is no member any more; why must not use the view.
func (v *View) Replace(hosts []Host, now time.Time, why func(Host) Departure) {
	v.mu.Lock()
	if v.mu.gone == nil {
		v.mu.gone = make(map[core.HostID]Gone)
	}
	remember(v.mu.gone, v.mu.hosts, hosts, now, why)
	v.mu.hosts = hosts
	wakes := slices.Collect(maps.Keys(v.mu.wakes))
	v.mu.Unlock()
	for _, wake := range wakes {
		(*wake)()
	}
}

// Explain asks again why hosts that are down are no members.
func (v *View) Explain(why func(Host) Departure) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, g := range v.mu.gone {
		if g.Left {
			continue
		}
		switch why(g.Host) {
		case Left:
			g.Left = true
			v.mu.gone[id] = g
		case Foreign:
			delete(v.mu.gone, id)
		}
	}
}

// Hosts are as Monitor says.
func (v *View) Hosts(role string) []Host {
	hosts := v.All()
	if role == "" {
		return slices.Clone(hosts)
	}
	var out []Host
	for _, h := range hosts {
		if h.Has(role) {
			out = append(out, h)
		}
	}
	return out
}

// All are the hosts themselves, not to be changed.
func (v *View) All() []Host {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mu.hosts
}

// Gone are as Monitor says.
func (v *View) Gone() []Gone {
	v.mu.Lock()
	defer v.mu.Unlock()
	return recent(v.mu.gone, time.Now())
}

// Changed implements Monitor.
func (v *View) Changed(wake func()) (stop func()) {
	key := &wake
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.wakes == nil {
		v.mu.wakes = make(map[*func()]struct{})
	}
	v.mu.wakes[key] = struct{}{}
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.mu.wakes, key)
	}
}
