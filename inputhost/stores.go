package inputhost

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// storeLimits are when a store counts as failed.
type storeLimits struct {
	deadline time.Duration // the oldest batch without an acknowledgement
	slow     time.Duration // that batch, or an acknowledgement, for slowFor at a stretch
	slowFor  time.Duration
	stuck    time.Duration // no acknowledgement at all, while another replica has what this one does not acknowledge
}

const (
	evictEvery  = time.Second      // at most one store
	standstill  = time.Second      // looks further apart than this: this host itself stood still, and no store is to blame
	forgetSlow  = 2 * time.Second  // without any traffic
	avoidBroken = 10 * time.Second // a store whose link broke, or that refused
	backAfter   = 2 * time.Second  // a store is usable again: extents with too few replicas are replaced
	backSpread  = 8 * time.Second  // … over this time
	avoidSlow   = time.Minute      // one that was evicted; it is not evicted for slowness again meanwhile
)

// evictReason is why a store is evicted; the metric shows it.
type evictReason string

const (
	evictLate  evictReason = "deadline" // one batch too old
	evictStuck evictReason = "stuck"    // nothing acknowledged, while another replica has it
	evictSlow  evictReason = "slow"     // for long
)

// of is the error that ends the extents.
func (r evictReason) of(store core.HostID, l storeLimits) error {
	switch r {
	case evictStuck:
		return core.Errorf(core.CodeDeadline, "store %s acknowledged nothing for %s, while others did", store, l.stuck)
	case evictSlow:
		return core.Errorf(core.CodeDeadline, "store %s has been slower than %s for %s", store, l.slow, l.slowFor)
	default:
		return core.Errorf(core.CodeDeadline, "store %s did not acknowledge within %s", store, l.deadline)
	}
}

// lag is what a look finds of one store over all its extents; 0: there is none.
type lag struct {
	oldest    time.Duration // the age of the oldest batch that it has not acknowledged
	slowest   time.Duration // of its acknowledgements since the last look
	behind    time.Duration // the age of the oldest batch that it has not acknowledged, and another replica has
	overtaken time.Duration // … and newer ones, too
	silent    time.Duration // its link brought no sign of life, though it was asked for one
}

// stores is how this host's stores fare, by what it sees of them itself: the rule by which it turns away from one. It
// has no clock and does no I/O. Safe for concurrent use.
//
//	well ──slow for 5 s while another is not, 5 s without an ack, or stuck──▶ evicted (one per second), avoided for a minute ──▶ well
//	  └──────link broke, refused──────▶ avoided for 10 s, or until an extent was opened on it, or it was started anew──▲
type stores struct {
	limits storeLimits
	mu     struct {
		sync.Mutex
		known   map[core.HostID]*storeHealth
		runs    map[core.HostID]core.RunID // as membership shows them
		usable  map[core.HostID]core.RunID // of those, the ones that are not avoided
		back    time.Time                  // when one became usable last
		looked  time.Time
		resumed time.Time // the end of the last standstill of this host
		evicted time.Time // the last eviction
		stuck   time.Time // the last one of a store that was stuck
	}
}

type storeHealth struct {
	slowSince time.Time     // zero: it is not slow
	slowAt    time.Time     // the last look at which it was
	stuck     time.Duration // for so long, as far as the looks were on time
	failed    time.Time     // the last failure
	broken    time.Time     // avoided until then
	evicted   time.Time     // avoided, and not evicted for slowness, until then
}

func newStores(l storeLimits) *stores {
	s := &stores{limits: l}
	s.mu.known = make(map[core.HostID]*storeHealth)
	s.mu.runs = make(map[core.HostID]core.RunID)
	s.mu.usable = make(map[core.HostID]core.RunID)
	return s
}

func (s *stores) healthLocked(id core.HostID) *storeHealth {
	h := s.mu.known[id]
	if h == nil {
		h = &storeHealth{}
		s.mu.known[id] = h
	}
	return h
}

// look takes what was found of all stores, and names the one that is to be evicted now, if any: all its extents are to
// end.
func (s *stores) look(now time.Time, lags map[core.HostID]lag) (evict core.HostID, why evictReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	step := now.Sub(s.mu.looked)
	if s.mu.looked.IsZero() || step > standstill {
		s.mu.resumed = now
		for _, h := range s.mu.known {
			h.slowSince = time.Time{}
		}
	}
	s.mu.looked = now
	well := false // some store is not slow
	for id, l := range lags {
		l.oldest = min(l.oldest, now.Sub(s.mu.resumed))
		lags[id] = l
		h := s.healthLocked(id)
		h.noteStuck(step, l, s.limits.slow)
		well = h.note(now, l, s.limits.slow) || well
	}
	for id, h := range s.mu.known {
		if _, seen := lags[id]; !seen {
			h.stuck = 0
			if now.Sub(h.slowAt) > forgetSlow {
				h.slowSince = time.Time{}
			}
		}
		if h.slowSince.IsZero() && h.stuck == 0 && !h.avoided(now) {
			delete(s.mu.known, id)
		}
	}
	s.followLocked(now)
	if now.Sub(s.mu.evicted) < evictEvery {
		return "", ""
	}
	return s.chooseLocked(now, lags, well)
}

// followLocked notes which stores can be used.
func (s *stores) followLocked(now time.Time) {
	for id := range s.mu.usable {
		if _, member := s.mu.runs[id]; !member {
			delete(s.mu.usable, id)
		}
	}
	for id, run := range s.mu.runs {
		if h := s.mu.known[id]; h != nil && h.avoided(now) {
			delete(s.mu.usable, id)
			continue
		}
		if was, ok := s.mu.usable[id]; !ok || was != run {
			s.mu.usable[id], s.mu.back = run, now
		}
	}
}

// spare reports whether an extent that was opened at a time, on so many stores, could be on one more now. The moment
// differs by the extent, so that not all are replaced at once.
func (s *stores) spare(now, opened time.Time, e core.Extent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := backAfter + backSpread*time.Duration(e.ID.ID[len(e.ID.ID)-1])/256
	return len(s.mu.usable) > len(e.Replicas) && opened.Before(s.mu.back) && now.Sub(s.mu.back) >= after
}

// note reports whether the store is well; without evidence it is not.
func (h *storeHealth) note(now time.Time, l lag, limit time.Duration) (well bool) {
	switch {
	case max(l.oldest, l.slowest) >= limit:
		if h.slowSince.IsZero() {
			h.slowSince = now
		}
		h.slowAt = now
		return false
	case l.slowest > 0:
		h.slowSince = time.Time{}
		return true
	}
	return false
}

func (h *storeHealth) avoided(now time.Time) bool {
	return now.Before(h.broken) || now.Before(h.evicted)
}

// chooseLocked takes the store that has been silent for longest, or else the one that is stuck, or else, if another one
// is well, the one that has been slow for longest. When all are slow none of them is to blame, and there is none to
// turn to.
func (s *stores) chooseLocked(now time.Time, lags map[core.HostID]lag, well bool) (core.HostID, evictReason) {
	var late, slow core.HostID
	for _, id := range slices.Sorted(maps.Keys(lags)) {
		if lags[id].oldest >= s.limits.deadline && (late == "" || lags[id].oldest > lags[late].oldest) {
			late = id
		}
		h := s.mu.known[id]
		if h == nil || h.slowSince.IsZero() || now.Sub(h.slowSince) < s.limits.slowFor || now.Before(h.evicted) {
			continue
		}
		if slow == "" || h.slowSince.Before(s.mu.known[slow].slowSince) {
			slow = id
		}
	}
	var evict core.HostID
	var why evictReason
	stuck := s.stuckLocked(now)
	switch {
	case late != "":
		evict, why = late, evictLate
	case stuck != "":
		evict, why = stuck, evictStuck
		s.mu.stuck = now
	case slow != "" && well:
		evict, why = slow, evictSlow
	default:
		return "", ""
	}
	h := s.healthLocked(evict)
	h.slowSince, h.stuck, h.evicted, h.failed, s.mu.evicted = time.Time{}, 0, now.Add(avoidSlow), now, now
	return evict, why
}

// failed notes that a store ended an extent, or did not open one. A store that says the extent is at its end is none
// the worse for it. It reports whether the store was not avoided before: then another try finds others.
func (s *stores) failed(now time.Time, id core.HostID, cause error) (news bool) {
	switch core.CodeOf(cause) {
	case core.CodeFenced, core.CodeExists, core.CodeConflict:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.healthLocked(id)
	news = !h.avoided(now)
	h.failed, h.broken = now, now.Add(avoidBroken)
	return news
}

// opened notes that a store took an extent that it was asked to since. If it failed meanwhile, that is what counts.
func (s *stores) opened(since time.Time, id core.HostID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.mu.known[id]; h != nil && !h.failed.After(since) {
		h.broken = time.Time{}
	}
}

// members records the runs of stores that membership shows. A failure of one run says nothing about the next.
func (s *stores) members(hosts []membership.Host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range hosts {
		if h := s.mu.known[m.ID]; h != nil && s.mu.runs[m.ID] != m.Run {
			h.broken = time.Time{}
		}
	}
	clear(s.mu.runs)
	for _, m := range hosts {
		s.mu.runs[m.ID] = m.Run
	}
}

// run is that of a store as membership shows it; zero: it shows none.
func (s *stores) run(id core.HostID) core.RunID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.runs[id]
}

// avoid are the stores to leave out when there are others, the one that failed last first: of the others it is likelier
// that they are well again.
func (s *stores) avoid(now time.Time) []core.HostID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []core.HostID
	for id, h := range s.mu.known {
		if h.avoided(now) {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, func(a, b core.HostID) int {
		return cmp.Or(s.mu.known[b].failed.Compare(s.mu.known[a].failed), cmp.Compare(a, b))
	})
	return out
}
