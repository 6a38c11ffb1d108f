// Package sources chooses the store from which an extent is read.
package sources

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// Stores are those that extents are read from. They remember where reading failed lately, so that the other shares look
// elsewhere first. Safe for concurrent use.
type Stores struct {
	members membership.Monitor
	mu      struct {
		sync.Mutex
		shunned map[core.HostID]time.Time // until then
	}
}

// ShunFor is how long a store that failed is asked last; it is asked all the same when there is no other.
const ShunFor = 5 * time.Second

// New knows the stores that are members.
func New(members membership.Monitor) *Stores {
	s := &Stores{members: members}
	s.mu.shunned = make(map[core.HostID]time.Time)
	return s
}

// Shun notes that a store failed.
func (s *Stores) Shun(store core.HostID, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.shunned[store] = now.Add(ShunFor)
}

// ShunnedUntil is zero for a store that did not fail lately.
func (s *Stores) ShunnedUntil(store core.HostID, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.mu.shunned[store]
	if ok && !until.After(now) {
		delete(s.mu.shunned, store)
		return time.Time{}
	}
	return until
}

// source is a store that an extent can be read from.
type source struct {
	membership.Host
	until time.Time // not before, if there is another
	rank  int       // those of other zones come last
}

// Of are the live stores that have the extent, the one to be asked first in front: of a sealed extent its holders, else
// its replicas; those that failed last come last. Readers of one extent prefer one store: it has the tail in memory.
// When no holder is there, or all have failed lately, the other replicas are asked, too: they may have a part of it,
// and be all that there is.
func (s *Stores) Of(e core.Extent, holders []core.HostID, failed map[core.HostID]time.Time, now time.Time) []membership.Host {
	if len(holders) == 0 {
		holders = e.Replicas
	}
	out := s.among(e, holders, failed, now)
	if !slices.ContainsFunc(out, func(x source) bool { return x.until.IsZero() }) {
		out = s.among(e, append(slices.Clone(holders), others(e, holders)...), failed, now)
	}
	return hosts(out)
}

// All is Of, and the other replicas of a sealed extent after its holders.
func (s *Stores) All(e core.Extent, holders []core.HostID, now time.Time) []membership.Host {
	return hosts(append(s.among(e, holders, nil, now), s.among(e, others(e, holders), nil, now)...))
}

// others are the replicas of an extent but for its holders.
func others(e core.Extent, holders []core.HostID) []core.HostID {
	return slices.DeleteFunc(slices.Clone(e.Replicas), func(id core.HostID) bool { return slices.Contains(holders, id) })
}

func hosts(from []source) []membership.Host {
	out := make([]membership.Host, len(from))
	for i, s := range from {
		out[i] = s.Host
	}
	return out
}

// among are those of some stores that are live, the one to be asked first in front.
func (s *Stores) among(e core.Extent, ids []core.HostID, failed map[core.HostID]time.Time, now time.Time) []source {
	zone := s.members.Self().Zone
	var out []source
	for rank, id := range core.Rank(e.ID.String(), ids, func(id core.HostID) core.HostID { return id }) {
		m, ok := membership.Find(s.members, id)
		if !ok {
			continue
		}
		if m.Zone != zone {
			rank += len(ids)
		}
		x := source{Host: m, rank: rank, until: s.ShunnedUntil(id, now)}
		if f := failed[id]; f.After(now) && f.After(x.until) {
			x.until = f
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b source) int {
		return cmp.Or(a.until.Compare(b.until), cmp.Compare(a.rank, b.rank))
	})
	return out
}
