package outputhost

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/outputhost/inspect"
)

// A store may stop without its connections breaking, or never hear that an extent was sealed without it. So a reader
// that hears nothing is looked at: one that is owed bytes goes to another store; one that seems to have read everything
// is told what the metadata and another replica know.
const (
	watchEvery   = 250 * time.Millisecond
	stallAfter   = time.Second            // without a byte although there is more
	stallShunned = 500 * time.Millisecond // the same, at a store that has just failed another reader
	maxProbe     = 5 * time.Second
	probesAtOnce = 16
	probeTimeout = time.Second
)

// watch looks after readers, and follows the membership, until ctx ends.
func (h *Host) watch(ctx context.Context) {
	changed := make(chan struct{}, 1)
	stop := h.deps.Members.Changed(func() { poke(changed) })
	defer stop()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var probes sync.WaitGroup
	defer probes.Wait()
	probing := make(chan struct{}, 1)
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			h.leaveLostStores()
			poke(h.routing)
			continue
		case <-tick.C:
		}
		lost, quiet := h.quietReaders(h.deps.Now(), len(probing) == 0)
		for _, r := range lost {
			r.lost(core.Errorf(core.CodeUnavailable, "store %s has sent nothing for a while although there is more", r.store))
		}
		if len(quiet) > 0 { // answers may be slow in coming: meanwhile others are lost
			probing <- struct{}{}
			probes.Go(func() {
				probe(ctx, quiet)
				<-probing
			})
		}
	}
}

// leaveLostStores moves readers away from stores that are gone.
func (h *Host) leaveLostStores() {
	for _, g := range h.groupList() {
		g.mu.Lock()
		left := slices.DeleteFunc(g.readersLocked(), func(r *reader) bool {
			_, there := membership.Find(h.deps.Members, r.store)
			return r.mux == nil || there
		})
		g.mu.Unlock()
		for _, r := range left {
			r.lost(core.Errorf(core.CodeUnavailable, "store %s has left", r.store))
		}
	}
}

// quietReaders are those whose store owes them bytes for too long while there is another one to ask, and, if any can be
// now, those that have heard nothing for a while and are to be probed.
func (h *Host) quietReaders(now time.Time, probe bool) (lost, quiet []*reader) {
	for _, g := range h.groupList() {
		g.mu.Lock()
		for _, s := range g.mu.shares {
			r := s.reader
			if r == nil || r.mux == nil || r.stopped.Load() || r.granted <= 0 {
				continue
			}
			silent := now.Sub(r.heard)
			switch owed := r.owedLocked(); {
			case owed && silent >= stallShunned:
				if (silent >= stallAfter || !h.sources.ShunnedUntil(r.store, now).IsZero()) && len(s.sourcesLocked(now)) > 1 {
					lost = append(lost, r)
				}
			case probe && !owed && silent >= r.probe && !r.probing:
				r.probing = true
				quiet = append(quiet, r)
			}
		}
		g.mu.Unlock()
	}
	return lost, quiet
}

// owedLocked reports whether there is more than the store has told of; of a log: than it has sent.
func (r *reader) owedLocked() bool {
	if r.s.timers() {
		return r.s.last > r.upTo && r.s.lastOwedLocked() > r.upTo
	}
	return r.s.rules.Unread(r.s.last) > 0
}

// probe asks others how far the extents of readers go.
func probe(ctx context.Context, readers []*reader) {
	lifecycle.Each(probesAtOnce, readers, func(_ int, r *reader) { r.ask(ctx) })
}

// ask looks how far the extent goes: in its seal row, else at a replica that is not the reader's. It is asked again
// later and later. A store that reads timers is silent as long as none is due: that it is there is asked of itself.
func (r *reader) ask(ctx context.Context) {
	g, s := r.g, r.s
	lctx, cancel := context.WithTimeout(ctx, probeTimeout)
	err := g.look(lctx, s)
	cancel()
	ctx, cancel = context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	now := g.h.deps.Now()
	g.mu.Lock()
	var others []membership.Host
	if !s.end || s.timers() {
		others = s.sourcesLocked(now)
	}
	store := r.store
	g.mu.Unlock()
	last := core.Seq(0)
	asked, answer := false, error(nil)
	for _, o := range others {
		if own := o.ID == store; own != s.timers() || !own && !g.h.sources.ShunnedUntil(o.ID, now).IsZero() { // one that hangs must not hold up the look at other readers
			continue
		}
		var resp *connect.Response[pb.Replica]
		asked = true
		if resp, answer = g.h.deps.Peers.Store(o.Address).GetReplica(ctx, connect.NewRequest(&pb.GetReplicaRequest{Extent: s.extent.ID.ID[:]})); answer == nil {
			last = inspect.ReadableTo(resp.Msg)
		} else if silent(convert.FromRPC(answer)) {
			g.h.sources.Shun(o.ID, g.h.deps.Now())
		}
		break
	}
	if err = cmp.Or(answer, err); err != nil {
		g.h.log.Debug("cannot ask a store for the length of an extent", "extent", s.extent.ID, "group", g.name, "err", err)
	}
	if s.timers() && answer != nil && silent(convert.FromRPC(answer)) {
		r.lost(core.Errorf(core.CodeUnavailable, "store %s does not answer: %w", store, answer))
		return
	}
	g.mu.Lock()
	s.last = max(s.last, last)
	g.touchLocked(s)
	if s.timers() && asked && answer == nil {
		s.misses = 0
	}
	r.probing = false
	r.probe = min(2*r.probe, maxProbe)
	r.heard = g.h.deps.Now() // owed from here on, if it is
	exhausted := s.exhausted() && !s.removed
	g.mu.Unlock()
	if exhausted { // all of it was read, only its end was not heard
		r.stop()
		g.pump()
	}
}
