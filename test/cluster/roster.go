package cluster

import (
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
)

// roster is who is a member, and what each host believes. Safe for concurrent use.
type roster struct {
	mu struct {
		sync.Mutex
		up        map[core.HostID]membership.Host
		believed  map[core.HostID]map[core.HostID]membership.Host // by observer, without itself
		suspected map[[2]core.HostID]int                          // observer, subject: reasons not to believe that it is there
		monitors  map[core.HostID]*static.Monitor                 // of the running ones
	}
}

func newRoster() *roster {
	r := &roster{}
	r.mu.up = make(map[core.HostID]membership.Host)
	r.mu.believed = make(map[core.HostID]map[core.HostID]membership.Host)
	r.mu.suspected = make(map[[2]core.HostID]int)
	r.mu.monitors = make(map[core.HostID]*static.Monitor)
	return r
}

// join makes a host a member, and its monitor, which begins with who is there now.
func (r *roster) join(self membership.Host) (*static.Monitor, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, err := static.New(self)
	if err != nil {
		return nil, err
	}
	r.mu.up[self.ID] = self
	r.mu.monitors[self.ID] = m
	believed := make(map[core.HostID]membership.Host)
	for id, h := range r.mu.up {
		if id != self.ID {
			believed[id] = h
		}
	}
	r.mu.believed[self.ID] = believed
	return m, r.tellLocked(self.ID)
}

// announce says that a host is going to be a member, before it runs.
func (r *roster) announce(h membership.Host) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.up[h.ID] = h
}

// leave takes a host out.
func (r *roster) leave(id core.HostID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.up, id)
	delete(r.mu.monitors, id)
	delete(r.mu.believed, id)
}

// observers are the running hosts, in order.
func (r *roster) observers() []core.HostID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []core.HostID
	for id := range r.mu.monitors {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// learn makes what an observer believes about a host true.
func (r *roster) learn(observer, subject core.HostID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	believed := r.mu.believed[observer]
	if believed == nil || observer == subject {
		return nil
	}
	if h, up := r.mu.up[subject]; up {
		believed[subject] = h
	} else {
		delete(believed, subject)
	}
	return r.tellLocked(observer)
}

// trustAll makes what all believe true.
func (r *roster) trustAll() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.mu.suspected)
	for observer, believed := range r.mu.believed {
		clear(believed)
		for id, h := range r.mu.up {
			if id != observer {
				believed[id] = h
			}
		}
		if err := r.tellLocked(observer); err != nil {
			return err
		}
	}
	return nil
}

// suspect makes an observer miss a host, wrongly perhaps, until it is called with -1 as often as with 1.
func (r *roster) suspect(observer, subject core.HostID, by int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.suspected[[2]core.HostID{observer, subject}] += by
	return r.tellLocked(observer)
}

func (r *roster) tellLocked(observer core.HostID) error {
	m := r.mu.monitors[observer]
	if m == nil {
		return nil
	}
	view := []membership.Host{r.mu.up[observer]}
	for id, h := range r.mu.believed[observer] {
		if r.mu.suspected[[2]core.HostID{observer, id}] <= 0 {
			view = append(view, h)
		}
	}
	return m.Set(view)
}

// later runs f after a delay, unless the cluster is closed first.
func (c *Cluster) later(delay time.Duration, f func()) {
	c.wg.Go(func() {
		select {
		case <-c.closed:
		case <-time.After(delay):
			f()
		}
	})
}
