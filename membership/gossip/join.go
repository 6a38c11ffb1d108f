package gossip

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/serf/serf"
)

// Bounds of the pause between two rounds of joins.
const (
	minJoinPause = 200 * time.Millisecond
	maxJoinPause = 2 * time.Second
)

// sayEvery is how often an address that stays out of reach is logged.
const sayEvery = 30 * time.Second

// join tries the addresses of Config.Join that are not those of live members, round after round, until ctx ends.
func (m *Monitor) join(ctx context.Context) {
	said := make(map[string]time.Time) // when an address out of reach was logged
	tried := m.tried
	for pause := minJoinPause; ; pause = min(2*pause, maxJoinPause) {
		for _, i := range rand.Perm(len(m.cfg.Join)) {
			if ctx.Err() != nil {
				break
			}
			m.joinOne(ctx, m.cfg.Join[i], said)
		}
		if tried != nil {
			m.refreshNow(ctx)
			close(tried)
			tried = nil
		}
		m.forgetEarlierRuns()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// joinOne tries one address, unless a live member, perhaps this one, has it.
func (m *Monitor) joinOne(ctx context.Context, addr string, said map[string]time.Time) {
	ip, port, err := resolve(ctx, addr)
	if err == nil {
		if m.live(ip, port) {
			delete(said, addr)
			return
		}
		if _, err = m.agent.Join([]string{net.JoinHostPort(ip.String(), strconv.Itoa(port))}, true); err != nil {
			err = cmp.Or(errors.Unwrap(err), err) // the library joins errors over several lines
		}
	}
	switch last, before := said[addr]; {
	case ctx.Err() != nil:
	case err == nil:
		delete(said, addr)
		m.cfg.Log.Info("gossip: joined the cluster", "through", addr)
	case !before || time.Since(last) >= sayEvery:
		said[addr] = time.Now()
		m.cfg.Log.Warn("gossip: an address to join is not reachable; trying again", "addr", addr, "err", err)
	}
}

// live reports whether a live member has the gossip address.
func (m *Monitor) live(ip net.IP, port int) bool {
	for _, s := range m.agent.Members() {
		if s.Status == serf.StatusAlive && s.Addr.Equal(ip) && int(s.Port) == port {
			return true
		}
	}
	return false
}

// forgetEarlierRuns makes the cluster forget runs of this host that died: nobody needs to try them again.
func (m *Monitor) forgetEarlierRuns() {
	for _, s := range m.agent.Members() {
		if s.Status == serf.StatusFailed && s.Tags[tagID] == string(m.cfg.Self.ID) && s.Name != m.name {
			if err := m.agent.RemoveFailedNode(s.Name); err != nil {
				m.cfg.Log.Debug("gossip: an earlier run is not forgotten yet", "member", s.Name, "err", err)
			}
		}
	}
}

// refreshNow returns when the view is as new as what serf knows.
func (m *Monitor) refreshNow(ctx context.Context) {
	done := make(chan struct{})
	select {
	case m.level <- done:
		<-done
	case <-ctx.Done():
	case <-m.agent.ShutdownCh():
	}
}
