package cassandra

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"
)

const (
	// silentTime is how long a node that did not answer a request is asked after all others. Then one request tries it
	// again.
	silentTime = 10 * time.Second
	// silentAfter is how long a request waits at least before the end of its context counts as silence of the node.
	silentAfter = time.Second
)

// localFirst picks the local node first, and the others in turn while it is away or after it failed. A node that does
// not answer comes last: a process that stands still keeps its connections, and the driver notices after 20 s or more.
// Until then each request would wait for it in vain, and a transaction would never reach another node.
type localFirst struct {
	gocql.HostSelectionPolicy        // the others in turn
	local                     string // "host:port", "" = none
	silent                    *silentHosts
}

func newLocalFirst(local string) localFirst {
	return localFirst{gocql.RoundRobinHostPolicy(), local, &silentHosts{until: map[string]time.Time{}}}
}

// IsLocal implements gocql.HostSelectionPolicy.
func (p localFirst) IsLocal(host *gocql.HostInfo) bool { return p.local == "" || p.is(host) }

// is reports whether host is the local node, by its address or its name.
func (p localFirst) is(host *gocql.HostInfo) bool {
	return p.local == host.ConnectAddressAndPort() || p.local == host.HostnameAndPort()
}

// Pick implements gocql.HostSelectionPolicy: all nodes once, the local one first, silent ones last.
func (p localFirst) Pick(q gocql.ExecutableQuery) gocql.NextHost {
	return p.order(q.Context(), p.HostSelectionPolicy.Pick(q))
}

func (p localFirst) order(ctx context.Context, inner gocql.NextHost) gocql.NextHost {
	var first, others, silent []gocql.SelectedHost
	for h := inner(); h != nil; h = inner() {
		switch info := h.Info(); {
		case info == nil:
		case p.silent.avoid(info.HostID()):
			silent = append(silent, h)
		case p.local != "" && p.is(info):
			first = append(first, h)
		default:
			others = append(others, h)
		}
	}
	order := slices.Concat(first, others, silent)
	return func() gocql.SelectedHost {
		if len(order) == 0 {
			return nil
		}
		h := order[0]
		order = order[1:]
		return asked{SelectedHost: h, ctx: ctx, since: time.Now(), silent: p.silent}
	}
}

// asked is a node that a request is about to be sent to.
type asked struct {
	gocql.SelectedHost
	ctx    context.Context // of the request
	since  time.Time
	silent *silentHosts
}

// Mark implements gocql.SelectedHost: err is how the request ended. The driver calls it without an error when ctx
// ended.
func (a asked) Mark(err error) {
	a.SelectedHost.Mark(err)
	id := a.Info().HostID()
	switch {
	case errors.Is(err, gocql.ErrTimeoutNoResponse), err == nil && a.ctx.Err() != nil && time.Since(a.since) >= silentAfter:
		a.silent.add(id)
	case err == nil && a.ctx.Err() == nil, codeOf(err) >= 0:
		a.silent.remove(id)
	}
}

// silentHosts are the nodes that did not answer lately, by their ids. Safe for concurrent use.
type silentHosts struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// avoid reports whether others are to be asked before the host. When its time is over, it tells one caller to try it.
func (s *silentHosts) avoid(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, silent := s.until[id]
	now := time.Now()
	if silent && now.Before(until) {
		return true
	}
	if silent {
		s.until[id] = now.Add(silentTime)
	}
	return false
}

func (s *silentHosts) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until[id] = time.Now().Add(silentTime)
}

func (s *silentHosts) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.until, id)
}
