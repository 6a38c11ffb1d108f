package catalog

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

const (
	// refused is the weight of a connection that was refused: nobody listens there.
	refused = 2
	// ForgetAfter is for how long a host that left the membership is remembered with its address.
	ForgetAfter = 24 * time.Hour
)

// Store is what this controller knows of a store host. Its answers are the truth; membership only says where to ask.
type Store struct {
	membership.Host
	Member   bool               // as membership says
	Identity core.StoreIdentity // zero: it never answered
	Load     placement.Load
	Refuses  bool
	failures int       // answers missing in a row
	Seen     time.Time // of the last answer; before the first one, when it was first heard of
}

// Answering reports whether the store can be counted on: one answer that is late is no reason to move.
func (s Store) Answering() bool { return !s.Identity.Disk.IsZero() && !s.Silent() }

// Silent reports whether answers of the store were missing.
func (s Store) Silent() bool { return s.failures > 1 }

// Candidate is the store as a place for a replica.
func (s Store) Candidate() placement.Candidate {
	c := placement.Candidate{ID: s.ID, Zone: s.Zone, Weight: s.Load.Weight()}
	if s.Load.NearlyFull() {
		c.Tier = placement.Full
	}
	return c
}

// Stores are all store hosts that this controller has heard of. Safe for concurrent use.
type Stores struct {
	mu struct {
		sync.Mutex
		byID  map[core.HostID]*Store
		asked map[core.HostID]struct{} // by askStores, and not answered yet
		heard chan struct{}            // closed when a store has answered, or failed to
	}
}

// NewStores is an empty catalog.
func NewStores() *Stores {
	s := &Stores{}
	s.mu.byID = make(map[core.HostID]*Store)
	s.mu.asked = make(map[core.HostID]struct{})
	s.mu.heard = make(chan struct{})
	return s
}

// Adopt takes over the membership, and answers all stores that are worth asking.
func (s *Stores) Adopt(members []membership.Host, now time.Time) []membership.Host {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.mu.byID {
		st.Member = false
	}
	for _, m := range members {
		st := s.mu.byID[m.ID]
		if st == nil {
			st = &Store{Seen: now}
			s.mu.byID[m.ID] = st
		}
		st.Host, st.Member = m, true
	}
	var out []membership.Host
	for id, st := range s.mu.byID {
		if !st.Member && now.Sub(st.Seen) > ForgetAfter {
			delete(s.mu.byID, id)
			continue
		}
		if st.Address != "" {
			out = append(out, st.Host)
		}
	}
	return out
}

// Answered notes what a store said, and answers its identity of before; changed says that something of it is new.
func (s *Stores) Answered(id core.HostID, identity core.StoreIdentity, load placement.Load, refuses bool, now time.Time) (old core.StoreIdentity, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heardLocked()
	st := s.mu.byID[id]
	if st == nil {
		return old, false
	}
	old, changed = st.Identity, st.Identity != identity || !st.Answering() || st.Refuses && !refuses
	st.Identity, st.failures, st.Seen, st.Refuses, st.Load = identity, 0, now, refuses, load
	return old, changed
}

// Failed notes that a store did not answer. A refused connection is certain, a deadline may be a hiccup.
func (s *Stores) Failed(id core.HostID, err error) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heardLocked()
	st := s.mu.byID[id]
	if st == nil {
		return false
	}
	was := st.Answering()
	if core.CodeOf(err) == core.CodeUnavailable {
		st.failures += refused
	} else {
		st.failures++
	}
	return was && !st.Answering()
}

// Fresh reports whether a member was never asked.
func (s *Stores) Fresh(members []membership.Host) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(members, func(m membership.Host) bool {
		st := s.mu.byID[m.ID]
		return st == nil || st.Identity.Disk.IsZero() && st.failures == 0
	})
}

// Silent reports whether a member does not answer that did since.
func (s *Stores) Silent(since time.Time) bool {
	return s.Count(func(st Store) bool { return st.Member && !st.Answering() && st.Seen.After(since) }) > 0
}

// Refused reports whether the last answer of a member was before a time, and was that it takes no extents.
func (s *Stores) Refused(before time.Time) bool {
	return s.Count(func(st Store) bool { return st.Member && st.Answering() && st.Refuses && st.Seen.Before(before) }) > 0
}

// Get is what is known of a store.
func (s *Stores) Get(id core.HostID) (Store, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.mu.byID[id]; st != nil {
		return *st, true
	}
	return Store{}, false
}

// Answers reports whether a store can be counted on.
func (s *Stores) Answers(id core.HostID) bool {
	st, ok := s.Get(id)
	return ok && st.Answering()
}

// All that answer, sorted by id.
func (s *Stores) All() []Store { return s.Which(Store.Answering) }

// Which are the stores that which is true for, sorted by id.
func (s *Stores) Which(which func(Store) bool) []Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Store
	for _, st := range s.mu.byID {
		if which(*st) {
			out = append(out, *st)
		}
	}
	slices.SortFunc(out, func(a, b Store) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Count is how many stores which is true for.
func (s *Stores) Count(which func(Store) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, st := range s.mu.byID {
		if which(*st) {
			n++
		}
	}
	return n
}

// Hear is closed when the next answer of a store, or its failure, is known.
func (s *Stores) Hear() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.heard
}

func (s *Stores) heardLocked() {
	close(s.mu.heard)
	s.mu.heard = make(chan struct{})
}

// BeginAsk reports whether the store is not being asked yet.
func (s *Stores) BeginAsk(id core.HostID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, asked := s.mu.asked[id]
	s.mu.asked[id] = struct{}{}
	return !asked
}

// EndAsk ends what BeginAsk began.
func (s *Stores) EndAsk(id core.HostID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.asked, id)
}

// Snapshot is all stores at one moment.
func (s *Stores) Snapshot() map[core.HostID]Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[core.HostID]Store, len(s.mu.byID))
	for id, st := range s.mu.byID {
		out[id] = *st
	}
	return out
}

// Place is where a copy on the store would be.
func (s Store) Place() core.Place { return core.Place{Store: s.ID, Disk: s.Identity.Disk} }
