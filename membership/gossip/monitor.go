// Package gossip owns the membership by gossip: a serf agent per host spreads the list of hosts and detects hosts that
// are gone. It is the only user of serf.
package gossip

import (
	"cmp"
	"context"
	"log"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/serf/serf"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/membership"
)

// Config of a Monitor.
type Config struct {
	// Self is what the others are told. It does not change while the Monitor runs.
	Self membership.Host
	// Bind is the host:port of gossip, UDP and TCP. Port 0 takes a free one: see Address.
	Bind string
	// Advertise is the host:port that the others use. Empty: what Bind is bound to. Port 0: the bound one.
	Advertise string
	// Join are gossip addresses of members, host:port; one that can be reached is enough. None for the first of a cluster.
	Join []string
	// Cluster is the id of this host's cluster; zero: it is not known yet, see SetCluster.
	Cluster core.ID
	// Streams is how many TCP streams others may have open to this host at once; 0: 32. One address may have three
	// quarters of them. Each takes a file descriptor.
	Streams int
	Log     *slog.Logger
}

// Monitor is a member of the cluster and its view of the others. Safe for concurrent use.
//
//	new ──Start──▶ alone ──a member answers──▶ joined ──Stop──▶ left
//	                 ▲───────all others are gone──┘
//
// While an address of Config.Join is not that of a live member it is tried again, for ever; so both sides of a
// partition find each other again, and a member that starts before those it joins.
type Monitor struct {
	cfg     Config
	limited *slog.Logger // for lines that other members, or any packet, cause
	name    string       // in serf: one per run, so that an older run of the host is another member
	tasks   *lifecycle.Tasks
	tried   chan struct{}      // closed when each address of Join was tried once
	level   chan chan struct{} // asks follow for a refresh; it closes what it gets

	agent     *serf.Serf // from Start on
	transport *transport // the same
	address   string     // the same; see Address
	events    chan serf.Event
	doubles   map[core.RunID]time.Time // older live runs of a host, and when each is logged next; the refreshing goroutine's

	// Tests change these fields before Start.
	doubleGrace, reconnectEvery time.Duration
	wrap                        func(memberlist.NodeAwareTransport) memberlist.NodeAwareTransport

	cluster atomic.Pointer[core.ID] // zero: not known yet
	others  atomic.Pointer[others]
	foreign time.Time // when the log was told of hosts of another cluster; the refreshing goroutine's

	hosts membership.View
}

var _ membership.Monitor = (*Monitor)(nil)

// eventBuffer is how many events of serf may wait. They only say that the view may have changed, and are folded.
const eventBuffer = 512

// New checks the configuration: CodeBadArgument. It does no I/O.
func New(cfg Config) (*Monitor, error) {
	cfg.Self.Roles = slices.Sorted(slices.Values(cfg.Self.Roles))
	if _, err := core.ParseHostID(string(cfg.Self.ID)); err != nil {
		return nil, err
	}
	if err := checkTags(cfg.Self); err != nil {
		return nil, err
	}
	m := &Monitor{
		cfg: cfg, name: string(cfg.Self.ID) + "." + cfg.Self.Run.String(), tasks: lifecycle.NewTasks(),
		limited: telemetry.LimitBySource(cfg.Log), tried: make(chan struct{}), level: make(chan chan struct{}), events: make(chan serf.Event, eventBuffer),
		doubleGrace: doubleGrace, reconnectEvery: reconnectEvery,
		wrap: func(t memberlist.NodeAwareTransport) memberlist.NodeAwareTransport { return t },
	}
	m.cluster.Store(&cfg.Cluster)
	m.others.Store(new(others))
	m.hosts.Replace([]membership.Host{cfg.Self}, time.Now(), nil)
	return m, nil
}

// Foreign are the live hosts that gossip here and say that they belong to another cluster than this host, or to any,
// while this host knows of none. They are not to be changed.
func (m *Monitor) Foreign() []membership.Host { return m.others.Load().foreign }

// Joined are the live hosts that say that they belong to the cluster of this host, which is not among them. They are
// not to be changed.
func (m *Monitor) Joined() []membership.Host { return m.others.Load().joined }

// OtherRuns are the other live members with the id of this host. One of them may have crashed a moment ago. They are
// not to be changed.
func (m *Monitor) OtherRuns() []membership.Host { return m.others.Load().runs }

// others are live hosts that gossip here, by what they are to this host. They are replaced, never changed.
type others struct{ foreign, joined, runs []membership.Host }

// SetCluster tells the others which cluster this host belongs to. From then on hosts of other clusters are no members.
// After Start.
func (m *Monitor) SetCluster(id core.ID) {
	if *m.cluster.Swap(&id) == id {
		return
	}
	if err := m.agent.SetTags(tags(m.cfg.Self, id)); err != nil {
		m.cfg.Log.Warn("gossip: cannot announce the cluster of this host; the others learn it later", "err", err)
	}
}

// Start binds the address and begins to join the others in the background. On an error nothing is left behind:
// CodeBadArgument (no such address here), CodeConflict (the address is taken).
func (m *Monitor) Start(ctx context.Context) error {
	logger := log.New(m.bridge(), "", 0)
	ip, port, err := resolve(ctx, m.cfg.Bind)
	if err != nil {
		return err
	}
	inner, err := bind(ip.String(), port, logger)
	if err != nil {
		return core.Errorf(core.CodeConflict, "gossip on %s: %w; stop what uses the address, or choose another with --gossip", m.cfg.Bind, err)
	}
	m.transport = newTransport(inner, cmp.Or(m.cfg.Streams, mostStreams), m.limited)
	conf := m.serfConfig(logger)
	conf.MemberlistConfig.Transport = m.wrap(m.transport)
	conf.MemberlistConfig.BindAddr, conf.MemberlistConfig.BindPort = ip.String(), inner.GetAutoBindPort()
	if err = m.advertise(ctx, conf.MemberlistConfig); err == nil {
		m.agent, err = serf.Create(conf)
	}
	if err != nil {
		_ = m.transport.Shutdown() // the first error says more
		return core.Errorf(core.CodeUnavailable, "gossip on %s: %w", m.cfg.Bind, err)
	}
	m.address = m.agent.Memberlist().LocalNode().Address() // here, since memberlist writes to the node when its tags change
	m.refresh()
	m.tasks.Go(m.follow)
	m.tasks.Go(m.join)
	return nil
}

// bind listens by TCP and UDP. For port 0 TCP chooses the port, which may be taken for UDP: then another one is chosen.
func bind(ip string, port int, logger *log.Logger) (transport *memberlist.NetTransport, err error) {
	const tries = 10
	for range tries {
		transport, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{ip}, BindPort: port, Logger: logger})
		if err == nil || port != 0 {
			break
		}
	}
	return transport, err
}

// Stop tells the others that this host leaves, and ends. Hosts stays what it was. Idempotent.
func (m *Monitor) Stop(context.Context) error {
	if m.agent == nil || m.agent.State() == serf.SerfShutdown {
		return nil
	}
	if err := m.agent.Leave(); err != nil {
		m.cfg.Log.Warn("gossip: cannot announce that this host leaves; the others find out within seconds", "err", err)
	}
	err := m.agent.Shutdown()
	m.tasks.Stop(core.Errorf(core.CodeDraining, "gossip is stopping"))
	if err != nil {
		return core.Errorf(core.CodeInternal, "stop gossip: %w", err)
	}
	return nil
}

// Address is the gossip address that the others use, with the real port. After Start.
func (m *Monitor) Address() string { return m.address }

// Tried is closed when every address of Config.Join was tried once; Hosts has then what the first answer told.
func (m *Monitor) Tried() <-chan struct{} { return m.tried }

// advertise sets what the others are told of the address.
func (m *Monitor) advertise(ctx context.Context, conf *memberlist.Config) error {
	conf.AdvertisePort = conf.BindPort
	if m.cfg.Advertise == "" {
		return nil
	}
	ip, port, err := resolve(ctx, m.cfg.Advertise)
	if err != nil {
		return err
	}
	conf.AdvertiseAddr = ip.String()
	if port != 0 {
		conf.AdvertisePort = port
	}
	return nil
}

// follow keeps the view up to date until the agent has shut down; serf must never wait for it.
func (m *Monitor) follow(context.Context) {
	tick := time.NewTicker(levelEvery)
	defer tick.Stop()
	for {
		var asked chan struct{}
		select {
		case <-m.agent.ShutdownCh():
			return
		case asked = <-m.level:
		case <-tick.C:
		case <-m.events:
			for len(m.events) > 0 {
				<-m.events
			}
		}
		if m.agent.State() == serf.SerfAlive {
			m.refresh()
		}
		if asked != nil {
			close(asked)
		}
	}
}
