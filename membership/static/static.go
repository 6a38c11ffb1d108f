// Package static owns a fixed membership: a list of hosts, the same on every process that is given it.
package static

import (
	"cmp"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// Monitor is a list of hosts that changes only by Set. Safe for concurrent use.
type Monitor struct {
	self  core.HostID
	hosts membership.View
}

var _ membership.Monitor = (*Monitor)(nil)

// New is a membership of self and others. An error is CodeBadArgument: two hosts of one id, or one without an id.
func New(self membership.Host, others ...membership.Host) (*Monitor, error) {
	m := &Monitor{self: self.ID}
	if err := m.Set(append([]membership.Host{self}, others...)); err != nil {
		return nil, err
	}
	return m, nil
}

// Set replaces the list, which must hold the own host, and wakes those who asked for changes, on the caller's
// goroutine.
func (m *Monitor) Set(hosts []membership.Host) error {
	sorted := make([]membership.Host, len(hosts))
	for i, h := range hosts {
		h.Roles = slices.Sorted(slices.Values(h.Roles))
		sorted[i] = h
	}
	slices.SortFunc(sorted, func(a, b membership.Host) int { return cmp.Compare(a.ID, b.ID) })
	own := false
	for i, h := range sorted {
		switch {
		case h.ID == "":
			return core.Errorf(core.CodeBadArgument, "the host at %q has no id", h.Address)
		case i > 0 && sorted[i-1].ID == h.ID:
			return core.Errorf(core.CodeBadArgument, "two hosts are named %q; give each an id of its own", h.ID)
		}
		own = own || h.ID == m.self
	}
	if !own {
		return core.Errorf(core.CodeBadArgument, "the list of hosts lacks this one, %q", m.self)
	}
	m.hosts.Replace(sorted, time.Now(), func(membership.Host) membership.Departure { return membership.Down })
	return nil
}

// Hosts implements membership.Monitor.
func (m *Monitor) Hosts(role string) []membership.Host { return m.hosts.Hosts(role) }

// Gone implements membership.Monitor: hosts that Set left out are down.
func (m *Monitor) Gone() []membership.Gone { return m.hosts.Gone() }

// Self implements membership.Monitor.
func (m *Monitor) Self() membership.Host {
	hosts := m.hosts.All()
	return hosts[slices.IndexFunc(hosts, func(h membership.Host) bool { return h.ID == m.self })]
}

// Changed implements membership.Monitor.
func (m *Monitor) Changed(wake func()) (stop func()) { return m.hosts.Changed(wake) }
