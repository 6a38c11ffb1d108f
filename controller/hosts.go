package controller

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
)

// fate of a run of a host:
//
//	unsure ──membership shows it──▶ alive ──membership lost it, and it does not answer──▶ gone
//	   └──never shown for a while, or shown with another run──────────────────────────────▶ gone
type fate uint8

const (
	unsure fate = iota // this controller has just started and was not told of it yet
	alive
	gone
)

// seen is a host as membership last showed it.
type seen struct {
	membership.Host
	member bool
	gone   time.Time // when it was found gone; zero: it is there
}

// hosts are the input and output hosts. Membership is a hint: one that it loses is asked directly before anybody acts. Safe for
// concurrent use.
type hosts struct {
	wake  chan struct{}
	since time.Time // of this controller
	mu    struct {
		sync.Mutex
		byID map[core.HostID]*seen
	}
}

const (
	probeTimeout = 500 * time.Millisecond
	probeEvery   = time.Second // of those that membership lost and that answer
	probesAtOnce = 32
	// settleAfter is how long a controller waits at its start for hosts it knows from metadata only.
	settleAfter = 5 * time.Second
)

func newHosts(now time.Time) *hosts {
	x := &hosts{wake: make(chan struct{}, 1), since: now}
	x.mu.byID = make(map[core.HostID]*seen)
	return x
}

// watchHosts follows the membership until ctx ends, and asks for a round whenever a host came or went.
func (h *Host) watchHosts(ctx context.Context) {
	stop := h.deps.Members.Changed(func() { poke(h.hosts.wake) })
	defer stop()
	transport := &http.Transport{DialContext: h.deps.Peers.Dial, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	probe := &http.Client{Transport: transport, Timeout: probeTimeout}
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if h.followHosts(ctx, probe) {
			poke(h.moved)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-h.hosts.wake:
		}
	}
}

// followHosts takes over the membership and asks those that it lost; changed says that one came or went.
func (h *Host) followHosts(ctx context.Context, probe *http.Client) (changed bool) {
	changed, missing := h.hosts.adopt(h.deps.Members.Hosts(""), h.deps.now())
	var g errgroup.Group
	g.SetLimit(probesAtOnce)
	for _, m := range missing {
		g.Go(func() error {
			if !answers(ctx, probe, m) && ctx.Err() == nil {
				h.log.Warn("a host is gone", "host", m.ID, "addr", m.Address, "roles", m.Roles)
				h.hosts.lost(m, h.deps.now())
			}
			return nil
		})
	}
	g.Wait()
	for _, m := range missing {
		changed = changed || h.hosts.fate(m.ID, m.Run, h.deps.now()) == gone
	}
	return changed
}

// answers reports whether that run of a host answers.
func answers(ctx context.Context, probe *http.Client, m membership.Host) bool {
	return peer.Answers(ctx, probe, m.Address, m.ID, m.Run)
}

// adopt takes over the membership; changed: a run was not there before; missing: those it lacks that were not found gone. One whose address
// is another's by now is gone: who answers there would be the other.
func (x *hosts) adopt(members []membership.Host, now time.Time) (changed bool, missing []membership.Host) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.mu.byID {
		s.member = false
	}
	taken := make(map[string]bool, len(members))
	for _, m := range members {
		taken[m.Address] = true
		old := x.mu.byID[m.ID]
		changed = changed || old == nil || old.Run != m.Run || !old.gone.IsZero()
		x.mu.byID[m.ID] = &seen{Host: m, member: true}
	}
	for id, s := range x.mu.byID {
		switch {
		case s.member:
		case s.gone.IsZero() && taken[s.Address]:
			s.gone, changed = now, true
		case s.gone.IsZero():
			missing = append(missing, s.Host)
		case now.Sub(s.gone) > catalog.ForgetAfter:
			delete(x.mu.byID, id)
		}
	}
	return changed, missing
}

// lost notes that a run was asked and did not answer.
func (x *hosts) lost(m membership.Host, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.mu.byID[m.ID]; s != nil && s.Run == m.Run && !s.member {
		s.gone = now
	}
}

// fate of a run.
func (x *hosts) fate(id core.HostID, run core.RunID, now time.Time) fate {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.mu.byID[id]
	switch {
	case s == nil && now.Sub(x.since) < settleAfter:
		return unsure
	case s == nil, s.Run != run, !s.gone.IsZero():
		return gone
	}
	return alive
}

// live are the hosts of a role that were not found gone, sorted by id.
func (x *hosts) live(role string) []membership.Host {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []membership.Host
	for _, s := range x.mu.byID {
		if s.gone.IsZero() && s.Has(role) {
			out = append(out, s.Host)
		}
	}
	slices.SortFunc(out, func(a, b membership.Host) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
