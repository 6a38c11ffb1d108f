package gossip

import (
	"bytes"
	"cmp"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/serf/serf"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// Hosts implements membership.Monitor: the live members.
func (m *Monitor) Hosts(role string) []membership.Host { return m.hosts.Hosts(role) }

// Gone implements membership.Monitor.
func (m *Monitor) Gone() []membership.Gone { return m.hosts.Gone() }

// Self implements membership.Monitor.
func (m *Monitor) Self() membership.Host { return m.cfg.Self }

// Changed implements membership.Monitor.
func (m *Monitor) Changed(wake func()) (stop func()) { return m.hosts.Changed(wake) }

// refresh makes serf's members the view, and wakes those who asked for changes. Called by one goroutine at a time.
func (m *Monitor) refresh() {
	var live []membership.Host
	var around others
	own := *m.cluster.Load()
	departed := make(map[core.RunID]membership.Departure)
	for _, s := range m.agent.Members() {
		if s.Status == serf.StatusFailed {
			continue
		}
		h, err := hostOf(s.Tags)
		if err != nil {
			m.cfg.Log.Debug("gossip: a member is no host of this cluster", "member", s.Name, "err", err)
			continue
		}
		if s.Status != serf.StatusAlive {
			departed[h.Run] = membership.Left
			continue
		}
		theirs := s.Tags[tagCluster]
		if theirs != "" && (own.IsZero() || theirs != shortCluster(own)) {
			around.foreign = append(around.foreign, h)
			if !own.IsZero() {
				departed[h.Run] = membership.Foreign
				m.tellForeign(h, time.Now())
				continue
			}
		}
		live = append(live, h)
		switch {
		case h.ID == m.cfg.Self.ID && h.Run != m.cfg.Self.Run:
			around.runs = append(around.runs, h)
		case h.ID != m.cfg.Self.ID && theirs != "":
			around.joined = append(around.joined, h)
		}
	}
	m.others.Store(&around)
	old := m.hosts.All()
	hosts, doubles := view(live)
	m.tellDoubles(doubles, time.Now())
	why := func(h membership.Host) membership.Departure { return departed[h.Run] }
	if slices.EqualFunc(old, hosts, same) {
		m.hosts.Explain(why) // that a host left may be heard after its silence was noticed
		return
	}
	m.tell(old, hosts)
	m.hosts.Replace(hosts, time.Now(), why)
}

// view is the live hosts sorted by id, of each id the newest run; doubles are the others.
func view(live []membership.Host) (hosts, doubles []membership.Host) {
	slices.SortFunc(live, func(a, b membership.Host) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), -bytes.Compare(a.Run.ID[:], b.Run.ID[:]))
	})
	for i, h := range live {
		if i > 0 && live[i-1].ID == h.ID {
			doubles = append(doubles, h)
			continue
		}
		hosts = append(hosts, h)
	}
	return hosts, doubles
}

func same(a, b membership.Host) bool {
	return a.ID == b.ID && a.Run == b.Run && a.Address == b.Address && a.Zone == b.Zone && slices.Equal(a.Roles, b.Roles)
}

// tell logs what has changed.
func (m *Monitor) tell(old, hosts []membership.Host) {
	before := make(map[core.HostID]membership.Host, len(old))
	for _, h := range old {
		before[h.ID] = h
	}
	for _, h := range hosts {
		o, known := before[h.ID]
		delete(before, h.ID)
		switch {
		case !known:
			m.limited.Info("host joined", hostAttrs(h)...)
		case o.Run != h.Run:
			m.limited.Info("host restarted", hostAttrs(h)...)
		}
	}
	for _, h := range before {
		m.limited.Warn("host is gone", hostAttrs(h)...)
	}
}

// tellDoubles logs the older ones of live members that claim one id. A host that crashed and is back looks like one
// until its crash was found out, so they get some time.
func (m *Monitor) tellDoubles(doubles []membership.Host, now time.Time) {
	seen := make(map[core.RunID]time.Time, len(doubles))
	for _, d := range doubles {
		due, known := m.doubles[d.Run]
		switch {
		case !known:
			due = now.Add(m.doubleGrace)
		case !now.Before(due):
			due = now.Add(sayEvery)
			m.limited.Error("two live processes claim one host id: the newer run counts; was a data directory copied? compare them first: the older one has what was acknowledged since the copy. Then stop one of them", hostAttrs(d)...)
		}
		seen[d.Run] = due
	}
	m.doubles = seen
}

// tellForeign logs, now and then, that a host of another cluster gossips here.
func (m *Monitor) tellForeign(h membership.Host, now time.Time) {
	if now.Sub(m.foreign) < sayEvery {
		return
	}
	m.foreign = now
	m.cfg.Log.Warn("a host of another cluster gossips with this one and is not taken for a member; start it with --join of its own cluster", hostAttrs(h)...)
}

func hostAttrs(h membership.Host) []any {
	return []any{slog.Any("host", h.ID), slog.String("addr", h.Address), slog.Any("roles", h.Roles), slog.String("run", h.Run.String())}
}
