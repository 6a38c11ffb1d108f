package controller

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// store is what this controller knows of a store host. Its answers are the truth; membership only says where to ask.
type store struct {
	membership.Host
	member   bool               // as membership says
	identity core.StoreIdentity // zero: it never answered
	load     placement.Load
	refuses  bool
	failures int       // answers missing in a row
	seen     time.Time // of the last answer; before the first one, when it was first heard of
}

// answering reports whether the store can be counted on: one answer that is late is no reason to move.
func (s store) answering() bool { return !s.identity.Disk.IsZero() && s.failures < 2 }

// candidate is the store as a place for a replica.
func (s store) candidate() placement.Candidate {
	c := placement.Candidate{ID: s.ID, Zone: s.Zone, Weight: s.load.Weight()}
	if s.load.NearlyFull() {
		c.Tier = placement.Full
	}
	return c
}

const (
	// describeAtOnce bounds the calls of one round.
	describeAtOnce = 64
	// refused is the weight of a connection that was refused: nobody listens there.
	refused = 2
	// restart is for how long a store that does not answer is asked more often.
	restart = 30 * time.Second
	// forgetAfter is for how long a store that left the membership is remembered with its address.
	forgetAfter = 24 * time.Hour
)

// stores are all store hosts that this controller has heard of. Safe for concurrent use.
type stores struct {
	wake chan struct{} // a description is wanted now
	mu   struct {
		sync.Mutex
		byID  map[core.HostID]*store
		asked map[core.HostID]struct{} // by askStores, and not answered yet
		heard chan struct{}            // closed when a store has answered, or failed to
	}
}

func newStores() *stores {
	s := &stores{wake: make(chan struct{}, 1)}
	s.mu.byID = make(map[core.HostID]*store)
	s.mu.asked = make(map[core.HostID]struct{})
	s.mu.heard = make(chan struct{})
	return s
}

// watchStores asks all stores for their descriptions until ctx ends: every now and then, more often while one does not answer, and at once when
// membership changes.
func (h *Host) watchStores(ctx context.Context) {
	stop := h.deps.Members.Changed(func() { poke(h.stores.wake) })
	defer stop()
	next := time.NewTimer(h.cfg.DescribeEvery)
	defer next.Stop()
	for ctx.Err() == nil {
		if h.describeStores(ctx) {
			h.storesChanged()
		}
		pause := h.cfg.DescribeEvery
		if h.stores.silent(h.deps.now().Add(-restart)) { // membership shows stores a moment before they serve
			pause /= 10
		}
		next.Reset(pause)
		select {
		case <-ctx.Done():
		case <-next.C:
		case <-h.stores.wake:
		}
	}
}

// poke wakes a loop that may be awake.
func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// describeStores asks every store once, side by side; changed says that a store came, went, or has another disk or run.
func (h *Host) describeStores(ctx context.Context) (changed bool) {
	asked := h.stores.adopt(h.deps.Members.Hosts("storehost"), h.deps.now())
	var g errgroup.Group
	g.SetLimit(describeAtOnce)
	var mu sync.Mutex
	for _, m := range asked {
		g.Go(func() error {
			d, err := h.describe(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			changed = h.noteDescription(m.ID, d, err) || changed
			return nil
		})
	}
	g.Wait()
	h.metrics.stores.Set(float64(h.stores.count(store.answering)))
	return changed
}

func (h *Host) describe(ctx context.Context, m membership.Host) (*pb.StoreDescription, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.DescribeTimeout)
	defer cancel()
	resp, err := h.deps.Peers.Store(m.Address).Describe(ctx, connect.NewRequest(&pb.DescribeRequest{}))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	if got := core.HostID(resp.Msg.GetIdentity().GetStore()); got != m.ID {
		return nil, core.Errorf(core.CodeConflict, "store %s answers at %s", got, m.Address)
	}
	return resp.Msg, nil
}

func (h *Host) noteDescription(id core.HostID, d *pb.StoreDescription, err error) (changed bool) {
	if err != nil {
		return h.stores.failed(id, err)
	}
	identity, err := convert.Identity(d.Identity)
	if err != nil {
		return h.stores.failed(id, err)
	}
	old, changed := h.stores.answered(id, identity, d, h.deps.now())
	if !old.Disk.IsZero() && old.Disk != identity.Disk {
		h.log.Error("a store came back with another disk: its replicas are gone, and are copied again from other stores", "store", id, "disk", identity.Disk, "was", old.Disk)
	}
	return changed
}

// adopt takes over the membership, and answers all stores that are worth asking.
func (s *stores) adopt(members []membership.Host, now time.Time) []membership.Host {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.mu.byID {
		st.member = false
	}
	for _, m := range members {
		st := s.mu.byID[m.ID]
		if st == nil {
			st = &store{seen: now}
			s.mu.byID[m.ID] = st
		}
		st.Host, st.member = m, true
	}
	var out []membership.Host
	for id, st := range s.mu.byID {
		if !st.member && now.Sub(st.seen) > forgetAfter {
			delete(s.mu.byID, id)
			continue
		}
		if st.Address != "" {
			out = append(out, st.Host)
		}
	}
	return out
}

func (s *stores) answered(id core.HostID, identity core.StoreIdentity, d *pb.StoreDescription, now time.Time) (old core.StoreIdentity, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heardLocked()
	st := s.mu.byID[id]
	if st == nil {
		return old, false
	}
	old, changed = st.identity, st.identity != identity || !st.answering() || st.refuses && !d.RefusesAppends
	st.identity, st.failures, st.seen, st.refuses = identity, 0, now, d.RefusesAppends
	st.load = placement.Load{
		Free: d.FreeBytes, Total: d.TotalBytes, BytesPerSecond: d.AppendBytesPerSecond, Sync: time.Duration(d.SyncMicros) * time.Microsecond,
	}
	return old, changed
}

// failed notes that a store did not answer. A refused connection is certain, a deadline may be a hiccup.
func (s *stores) failed(id core.HostID, err error) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heardLocked()
	st := s.mu.byID[id]
	if st == nil {
		return false
	}
	was := st.answering()
	if core.CodeOf(err) == core.CodeUnavailable {
		st.failures += refused
	} else {
		st.failures++
	}
	return was && !st.answering()
}

// callFailed notes how a call to a store ended. When nobody listens at its address the next extent does not go there, and a description is asked
// for. A refusal that the store itself sent says that it is there.
func (s *stores) callFailed(id core.HostID, rpc error) {
	if connect.IsWireError(rpc) {
		return
	}
	if err := convert.FromRPC(rpc); core.CodeOf(err) == core.CodeUnavailable && s.failed(id, err) {
		poke(s.wake)
	}
}

// fresh reports whether a member was never asked.
func (s *stores) fresh(members []membership.Host) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(members, func(m membership.Host) bool {
		st := s.mu.byID[m.ID]
		return st == nil || st.identity.Disk.IsZero() && st.failures == 0
	})
}

// silent reports whether a member does not answer that did since.
func (s *stores) silent(since time.Time) bool {
	return s.count(func(st store) bool { return st.member && !st.answering() && st.seen.After(since) }) > 0
}

// get is what is known of a store.
func (s *stores) get(id core.HostID) (store, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.mu.byID[id]; st != nil {
		return *st, true
	}
	return store{}, false
}

// answers reports whether a store can be counted on.
func (s *stores) answers(id core.HostID) bool {
	st, ok := s.get(id)
	return ok && st.answering()
}

// all that answer, sorted by id.
func (s *stores) all() []store {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store
	for _, st := range s.mu.byID {
		if st.answering() {
			out = append(out, *st)
		}
	}
	slices.SortFunc(out, func(a, b store) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func (s *stores) count(which func(store) bool) int {
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

// candidates are the stores that may get a replica, those with a wrong clock as the last; refusing is how many answer but take nothing.
func (s *stores) candidates(avoid []core.HostID, skewed func(core.HostID) bool) (out []placement.Candidate, refusing int) {
	for _, st := range s.all() {
		c := st.candidate()
		switch {
		case st.refuses:
			refusing++
			continue
		case skewed(st.ID):
			c.Tier = placement.Skewed
		case c.Tier == placement.Full:
		case slices.Contains(avoid, st.ID):
			c.Tier = placement.Avoided
		}
		out = append(out, c)
	}
	return out, refusing
}

// pardon makes the least bad of the avoided stores good, the worst of which come first, until as many are good as are needed: one that broke a
// moment ago is not drawn while one that broke before it may be back.
func pardon(from []placement.Candidate, avoid []core.HostID, least int) {
	good := countGood(from)
	for _, id := range slices.Backward(avoid) {
		if good >= least {
			return
		}
		i := slices.IndexFunc(from, func(c placement.Candidate) bool { return c.ID == id && c.Tier == placement.Avoided })
		if i >= 0 {
			from[i].Tier = placement.Good
			good++
		}
	}
}

func countGood(from []placement.Candidate) (n int) {
	for _, c := range from {
		if c.Tier == placement.Good {
			n++
		}
	}
	return n
}

// storeAt is the service of a store, wherever it was last heard of.
func (h *Host) storeAt(id core.HostID) (columbav1connect.StoreServiceClient, error) {
	if st, ok := h.stores.get(id); ok && st.Address != "" {
		return h.deps.Peers.Store(st.Address), nil
	}
	if m, ok := membership.Find(h.deps.Members, id); ok {
		return h.deps.Peers.Store(m.Address), nil
	}
	return nil, core.Errorf(core.CodeUnavailable, "store %s is not there", id)
}

// reached is how replicas are called.
type reached struct{ h *Host }

// At implements replicas.Stores.
func (x reached) At(id core.HostID) (columbav1connect.StoreServiceClient, error) {
	return x.h.storeAt(id)
}

// Patience implements replicas.Stores: a store that has not answered for a while gets no more than a question how it fares.
func (x reached) Patience(id core.HostID) time.Duration {
	if st, known := x.h.stores.get(id); known && !st.answering() {
		return min(x.h.cfg.DescribeTimeout, x.h.cfg.CallTimeout)
	}
	return x.h.cfg.CallTimeout
}

// Heard implements replicas.Stores.
func (x reached) Heard(id core.HostID, rpc error) { x.h.stores.callFailed(id, rpc) }
