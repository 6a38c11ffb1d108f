package outputhost

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// stores remembers where reading failed lately, so that the other shares look elsewhere first. Safe for concurrent use.
type stores struct {
	mu struct {
		sync.Mutex
		shunned map[core.HostID]time.Time // until then
	}
}

// shunFor is how long a store that failed is asked last; it is asked all the same when there is no other.
const shunFor = 5 * time.Second

func newStores() *stores {
	s := &stores{}
	s.mu.shunned = make(map[core.HostID]time.Time)
	return s
}

func (s *stores) shun(store core.HostID, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.shunned[store] = now.Add(shunFor)
}

// shunnedUntil is zero for a store that did not fail lately.
func (s *stores) shunnedUntil(store core.HostID, now time.Time) time.Time {
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
	far   bool      // in another zone
	rank  int
}

// sources are the live stores that have the extent, the one to be asked first in front: of a sealed extent its holders, else its
// replicas; those that failed last come last. Readers of one extent prefer one store: it has the tail in memory.
func (h *Host) sources(e core.Extent, holders []core.HostID, failed map[core.HostID]time.Time, now time.Time) []source {
	ids := e.Replicas
	if len(holders) > 0 {
		ids = holders
	}
	zone := h.deps.Members.Self().Zone
	var out []source
	for rank, id := range core.Rank(e.ID.String(), ids, func(id core.HostID) core.HostID { return id }) {
		m, ok := membership.Find(h.deps.Members, id)
		if !ok {
			continue
		}
		s := source{Host: m, far: m.Zone != zone, rank: rank, until: h.stores.shunnedUntil(id, now)}
		if f := failed[id]; f.After(now) && f.After(s.until) {
			s.until = f
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b source) int {
		return cmp.Or(a.until.Compare(b.until), compareBool(a.far, b.far), cmp.Compare(a.rank, b.rank))
	})
	return out
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// sourcesLocked are those of the share's extent.
func (s *share) sourcesLocked(now time.Time) []source {
	return s.group.h.sources(s.extent, s.holders, s.failed, now)
}

// lookEvery bounds how often a share's seal row is read because reading fails.
const lookEvery = 250 * time.Millisecond

// look reads the seal row of the share's extent: its end, once it is fixed, and its holders, which repair may have changed.
func (g *group) look(ctx context.Context, s *share) error {
	seal, _, err := metadata.Read[metadata.SealRecord](ctx, g.h.deps.Meta, metadata.Seals, metadata.SealKey(s.extent.ID), metadata.One)
	if core.CodeOf(err) == core.CodeNotFound {
		return nil // nobody has sealed it
	}
	if err != nil {
		return core.Errorf(core.CodeOf(err), "look up the end of extent %s: %w", s.extent.ID, err)
	}
	g.ended(s, seal)
	return nil
}

// ended takes over what a seal row says: the end of the extent, once it is fixed, and its holders.
func (g *group) ended(s *share, seal metadata.SealRecord) {
	g.mu.Lock()
	finished := false
	if seal.State.HasEnd() && !s.removed {
		s.end, s.l, s.last, s.holders, s.retired = true, seal.L, max(s.last, seal.L), seal.Holders, seal.State == core.ExtentRetired
		finished = s.finished()
	}
	g.mu.Unlock()
	if finished {
		g.h.saver.note(g, saveSoon)
	}
}

// openTimeout bounds the wait for a connection to a store while there is another one to ask.
const openTimeout = time.Second

// choose picks the store to read from.
func (r *reader) choose(ctx context.Context) (at source, alone bool, err error) {
	g, s := r.g, r.s
	now := g.h.deps.Now()
	g.mu.Lock()
	look := s.misses > 0 && now.Sub(s.lookedAt) >= lookEvery
	if look {
		s.lookedAt = now
	}
	g.mu.Unlock()
	if look {
		lctx, cancel := context.WithTimeout(ctx, openTimeout)
		if err := g.look(lctx, s); err != nil { // the stores that are known will do
			g.h.log.Debug("cannot look for the holders of an extent", "extent", s.extent.ID, "err", err)
		}
		cancel()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.retired {
		return source{}, true, core.Errorf(core.CodeNotFound, "extent %s was retired", s.extent.ID)
	}
	from := s.sourcesLocked(now)
	if len(from) == 0 {
		return source{}, true, core.Errorf(core.CodeUnavailable, "no store of extent %s is there", s.extent.ID)
	}
	r.store = from[0].ID
	return from[0], len(from) == 1, nil
}

// silent reports whether the error is about the store as a whole.
func silent(err error) bool {
	switch core.CodeOf(err) {
	case core.CodeUnavailable, core.CodeDraining, core.CodeDeadline:
		return true
	}
	return false
}

// failed notes that reading from the store failed, and says how long to wait before the next one is asked.
func (r *reader) failed(err error, now time.Time) time.Duration {
	s := r.s
	if r.store != "" && silent(err) {
		r.g.h.stores.shun(r.store, now)
	}
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	s.misses++
	s.trouble = err
	if r.store != "" {
		if s.failed == nil {
			s.failed = make(map[core.HostID]time.Time)
		}
		s.failed[r.store] = now.Add(shunFor)
	}
	stores := max(len(s.sourcesLocked(now)), 1)
	round := (s.misses - 1) / stores // how often all of them have failed
	if s.misses%stores != 0 {
		return 0
	}
	return min(readRetry<<min(round, 13), r.g.retryLocked())
}

// The pause after all stores of an extent have failed doubles with each round. It begins short: a share is often given out before its
// extent is open on the stores. When many extents cannot be read, it ends longer: together they ask no more than some ten times a second.
const (
	readRetry    = 2 * time.Millisecond
	maxReadRetry = time.Second
	longestRetry = 10 * time.Second
	retryShare   = 100 * time.Millisecond
)

// retryLocked is the longest pause.
func (g *group) retryLocked() time.Duration {
	failing := 0
	for _, s := range g.mu.shares {
		if s.failing() {
			failing++
		}
	}
	return min(max(maxReadRetry, time.Duration(failing)*retryShare), longestRetry)
}
