package cluster

import (
	"maps"
	"slices"
	"sync"

	"github.com/columbamq/columba/core"
)

// decider is a controller that says whether it is responsible for a queue.
type decider interface{ Responsible(key core.ID) bool }

// acting are the running processes that say what they are responsible for. Safe for concurrent use.
type acting struct {
	mu struct {
		sync.Mutex
		roles map[core.HostID]decider
	}
}

func (a *acting) begin(id core.HostID, r role) {
	d, ok := r.(decider)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.roles == nil {
		a.mu.roles = make(map[core.HostID]decider)
	}
	a.mu.roles[id] = d
}

func (a *acting) end(id core.HostID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.mu.roles, id)
}

// deciders is how many processes say what they are responsible for.
func (a *acting) deciders() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.mu.roles)
}

// responsible are those that say, at one time, that they are responsible for a key.
func (a *acting) responsible(key core.ID) (out []core.HostID) {
	a.mu.Lock()
	roles := maps.Clone(a.mu.roles)
	a.mu.Unlock()
	for id, r := range roles {
		if r.Responsible(key) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}
