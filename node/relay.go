package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// relayChoice is which controller a host asks for metadata in Cassandra. It keeps to one until a call to that one fails
// or takes long. One of its own zone comes first: when the zones are cut off from each other, no call of the host waits
// for the other side until membership notices. Safe for concurrent use.
type relayChoice struct {
	asked atomic.Pointer[asked]
}

type asked struct {
	id    core.HostID
	since time.Time
}

const (
	// relayPatience is how long a call may take before the next calls go to another relay.
	relayPatience = 1500 * time.Millisecond
	// relayHome is how long a host keeps to a relay of another zone before it asks one of its own again.
	relayHome = time.Minute
)

// choose is the relay to ask now. Hosts spread over the relays of their zone, or over all when it has none.
func (r *relayChoice) choose(zone string, hosts []membership.Host, now time.Time) membership.Host {
	var home []membership.Host
	for _, h := range hosts {
		if h.Zone == zone {
			home = append(home, h)
		}
	}
	last := r.asked.Load()
	if last != nil {
		for _, h := range hosts {
			if h.ID == last.id && (h.Zone == zone || len(home) == 0 || now.Sub(last.since) < relayHome) {
				return h
			}
		}
	}
	if len(home) == 0 {
		home = hosts
	}
	picked := home[rand.IntN(len(home))]
	r.asked.CompareAndSwap(last, &asked{picked.ID, now})
	return picked
}

// turn leaves the relay at an address for the next one.
func (r *relayChoice) turn(addr string, hosts []membership.Host, now time.Time) {
	last := r.asked.Load()
	for i, h := range hosts {
		if h.Address == addr && last != nil && h.ID == last.id {
			r.asked.CompareAndSwap(last, &asked{hosts[(i+1)%len(hosts)].ID, now})
		}
	}
}

// watch returns a transport that turns to another relay when a call through next gets no answer, none of the metadata,
// or none for long.
func (f *finder) watch(next http.RoundTripper) http.RoundTripper { return watched{next, f} }

type watched struct {
	http.RoundTripper
	finder *finder
}

func (w watched) RoundTrip(r *http.Request) (*http.Response, error) {
	turn := func() {
		w.finder.relay.turn(r.URL.Host, w.finder.members.Hosts(membership.RoleRelay), time.Now())
	}
	defer time.AfterFunc(relayPatience, turn).Stop()
	resp, err := w.RoundTripper.RoundTrip(r)
	lost := err != nil && !errors.Is(err, context.Canceled)
	if lost || err == nil && resp.StatusCode == http.StatusServiceUnavailable { // the relay does not reach Cassandra itself
		turn()
	}
	return resp, err
}
