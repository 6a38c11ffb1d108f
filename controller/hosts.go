package controller

import (
	"bytes"
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
//	   └──not shown for a while, or a newer run of the host shown─────────────────────────▶ gone
type fate uint8

const (
	unsure fate = iota // rows name it, or it called, and membership has not shown it yet
	alive
	gone
)

// seen is a host as membership last showed it.
type seen struct {
	membership.Host
	member bool
	gone   time.Time // when it was found gone; zero: it is there
}

// unshown is a run that membership does not show.
type unshown struct {
	since    time.Time // when this controller met it, or when it called last
	asked    time.Time // when its fate was asked for last
	followed bool      // it was shown, and another run of its host is shown since
	over     bool      // its time is over, and that was said
}

// hosts are the input and output hosts. Membership is a hint: one that it loses is asked directly before anybody acts.
// Safe for concurrent use.
type hosts struct {
	wake  chan struct{}
	since time.Time // of this controller
	mu    struct {
		sync.Mutex
		byID    map[core.HostID]*seen
		unshown map[catalog.HostRun]*unshown
		hearing time.Time // since when membership shows more than this host; zero: not yet
	}
}

const (
	probeTimeout = 500 * time.Millisecond
	probeEvery   = time.Second // of those that membership lost and that answer
	probesAtOnce = 32
	// settleAfter is for how long membership may not show a run that began before this controller. A host that joins
	// others is told all that they know.
	settleAfter = 5 * time.Second
	// lateAfter is the same for a run that began since, and for all while membership shows nobody else. Gossip may tell of
	// a host late, at the latest when hosts exchange all that they know, which they do every 10 s.
	lateAfter = 15 * time.Second
	// mostUnshown bounds the runs that are remembered since they call: anybody may call as any host. The runs that rows
	// name are remembered beyond it.
	mostUnshown = 10_000
)

func newHosts(now time.Time) *hosts {
	x := &hosts{wake: make(chan struct{}, 1), since: now}
	x.mu.byID = make(map[core.HostID]*seen)
	x.mu.unshown = make(map[catalog.HostRun]*unshown)
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
			h.pokeMoved()
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
	h.others.see(h.otherRuns(), h.duties.OtherRuns(), time.Now())
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

// adopt takes over the membership; changed: a run was not there before, or one was not shown in its time; missing:
// those it lacks that were not found gone. One whose address is another's by now is gone: who answers there would be
// the other.
func (x *hosts) adopt(members []membership.Host, now time.Time) (changed bool, missing []membership.Host) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.mu.byID {
		s.member = false
	}
	if x.mu.hearing.IsZero() && len(members) > 1 {
		x.mu.hearing = now
	}
	taken := make(map[string]bool, len(members))
	for _, m := range members {
		taken[m.Address] = true
		old := x.mu.byID[m.ID]
		changed = changed || old == nil || old.Run != m.Run || !old.gone.IsZero()
		x.mu.byID[m.ID] = &seen{Host: m, member: true}
		delete(x.mu.unshown, catalog.HostRun{Host: m.ID, Run: m.Run})
		if old != nil && old.Run != m.Run { // whatever its clock said when it began
			x.mu.unshown[catalog.HostRun{Host: m.ID, Run: old.Run}] = &unshown{asked: now, followed: true, over: true}
		}
	}
	for r, u := range x.mu.unshown {
		switch {
		case now.Sub(u.asked) > catalog.ForgetAfter:
			delete(x.mu.unshown, r)
		case !u.over && x.overLocked(r.Run, u, now):
			u.over, changed = true, true
		}
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

// fate of a run. Of two runs of one host the newer one counts, as membership has it. A run that membership has not
// shown is unsure for a while from when this controller met it: rows are read at any time, and a writer that is well
// must not lose its extents because it is new (adr/0061).
func (x *hosts) fate(id core.HostID, run core.RunID, now time.Time) fate {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.mu.byID[id]; s != nil {
		switch order := bytes.Compare(run.ID[:], s.Run.ID[:]); {
		case order == 0 && s.gone.IsZero():
			return alive
		case order <= 0:
			return gone
		}
	}
	u := x.metLocked(catalog.HostRun{Host: id, Run: run}, now)
	u.asked = now
	if x.overLocked(run, u, now) {
		return gone
	}
	return unsure
}

// heard notes that a run called this controller. The run is there, whether or not others reach it.
func (x *hosts) heard(r catalog.HostRun, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.mu.byID[r.Host]; s != nil && bytes.Compare(r.Run.ID[:], s.Run.ID[:]) <= 0 {
		return
	}
	if x.mu.unshown[r] == nil && len(x.mu.unshown) >= mostUnshown {
		return
	}
	if u := x.metLocked(r, now); !u.followed {
		u.since, u.asked, u.over = now, now, false
	}
}

// metLocked is what is known of a run that membership has not shown, from now on at the latest.
func (x *hosts) metLocked(r catalog.HostRun, now time.Time) *unshown {
	u := x.mu.unshown[r]
	if u == nil {
		u = &unshown{since: now}
		x.mu.unshown[r] = u
	}
	return u
}

// overLocked reports whether a run was not shown in its time.
func (x *hosts) overLocked(run core.RunID, u *unshown, now time.Time) bool {
	switch {
	case u.followed:
		return true
	case x.mu.hearing.IsZero(), run.Time().After(x.since):
		return now.Sub(u.since) >= lateAfter
	}
	return now.Sub(u.since) >= settleAfter && now.Sub(x.mu.hearing) >= settleAfter
}

// inputs are the runs of the input hosts that were not found gone.
func (h *Host) inputs() (out []core.RunID) {
	for _, m := range h.hosts.live("inputhost") {
		out = append(out, m.Run)
	}
	return out
}

// any reports whether a host with a role is there.
func (x *hosts) any(role string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.mu.byID {
		if s.gone.IsZero() && s.Has(role) {
			return true
		}
	}
	return false
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
