package controller

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
)

// openings are the breakers that are open on output hosts, as these said when they renewed their shares: each host is
// told those of all others (docs/adr/0076). They are in memory alone, and no metadata is asked. Safe for concurrent
// use.
type openings struct {
	mu struct {
		sync.Mutex
		counter uint64                      // of changes
		hosts   map[core.HostID]*openingsOf // that have an open breaker; ≤ mostOpeningHosts
	}
}

// openingsOf are those of one output host.
type openingsOf struct {
	run   core.RunID
	open  []core.BreakerOpening // ≤ core.MaxOpenings
	since []uint64              // the counter when each was first heard of
	heard time.Time
}

const (
	// openingsKept is how long what a host said stands without another word. It is longer than the shares of a host that
	// is gone stay with it: the next owner of these has the breaker open by then.
	openingsKept = 5 * time.Second
	// mostOpeningHosts bounds the hosts with an open breaker that are heard, and so the memory.
	mostOpeningHosts = 256
)

func newOpenings() *openings {
	x := &openings{}
	x.mu.hosts = make(map[core.HostID]*openingsOf)
	return x
}

// exchange takes over which breakers are open on a run of a host. It answers those of all other hosts, the newest
// core.MaxOpenings, unless nothing has changed since it answered the counter that is known.
func (x *openings) exchange(host catalog.HostRun, open []core.BreakerOpening, known uint64, now time.Time) (counter uint64, others []core.BreakerOpening) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(open)+len(x.mu.hosts) > 0 {
		x.forgetLocked(now)
		x.noteLocked(host, open, now)
	}
	if known == x.mu.counter {
		return known, nil
	}
	return x.mu.counter, x.othersLocked(host.Host)
}

// forgetLocked ends what hosts said that have been silent since.
func (x *openings) forgetLocked(now time.Time) {
	before := len(x.mu.hosts)
	maps.DeleteFunc(x.mu.hosts, func(_ core.HostID, o *openingsOf) bool { return now.Sub(o.heard) > openingsKept })
	if len(x.mu.hosts) < before {
		x.mu.counter++
	}
}

func (x *openings) noteLocked(host catalog.HostRun, open []core.BreakerOpening, now time.Time) {
	for i := range open {
		open[i].Run = host.Run // a host speaks for itself alone
	}
	was := x.mu.hosts[host.Host]
	switch {
	case was != nil && was.run == host.Run && slices.Equal(was.open, open):
		was.heard = now
		return
	case was == nil && (len(open) == 0 || len(x.mu.hosts) >= mostOpeningHosts):
		return
	case len(open) == 0:
		delete(x.mu.hosts, host.Host)
		x.mu.counter++
		return
	}
	x.mu.counter++
	first := make(map[core.BreakerOpening]uint64)
	if was != nil {
		for i, o := range was.open {
			first[o] = was.since[i]
		}
	}
	is := &openingsOf{run: host.Run, open: open, since: make([]uint64, len(open)), heard: now}
	for i, o := range open {
		is.since[i] = cmp.Or(first[o], x.mu.counter)
	}
	x.mu.hosts[host.Host] = is
}

// othersLocked are those of all hosts but one, the newest first.
func (x *openings) othersLocked(host core.HostID) (out []core.BreakerOpening) {
	type at struct {
		core.BreakerOpening
		since uint64
	}
	var all []at
	for id, o := range x.mu.hosts {
		if id == host {
			continue
		}
		for i := range o.open {
			all = append(all, at{o.open[i], o.since[i]})
		}
	}
	slices.SortFunc(all, func(a, b at) int {
		return cmp.Or(cmp.Compare(b.since, a.since), slices.Compare(a.Group.ID[:], b.Group.ID[:]), slices.Compare(a.Run.ID[:], b.Run.ID[:]))
	})
	for _, o := range all[:min(len(all), core.MaxOpenings)] {
		out = append(out, o.BreakerOpening)
	}
	return out
}
