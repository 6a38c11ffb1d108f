package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/gossip"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/migration"
	"github.com/columbamq/columba/metadata/pebble"
	"github.com/columbamq/columba/metadata/remote"
)

// resources are what the roles of a process stand on.
type resources struct {
	dir     *dataDir
	metrics *prometheus.Registry
	files   descriptors
	tcp     net.Listener
	mem     *netmem.Listener
	meta    metadata.Store
	guard   *guard
	self    membership.Host
	members membership.Monitor
	gossip  *gossip.Monitor   // nil without
	gossips []*gossip.Monitor // that and those of the further store hosts
	cluster *peer.Cluster
	begins  bool    // this run of the process made the cluster
	copies  *copies // nil without gossip or metadata
	peers   *peer.Pool
	stores  []*extraStore // the second and further store hosts

	finder  *finder        // of the metadata in another process; nil when they are in this one
	failed  func() error   // why the metadata of this process refuse everything; nil while they work, and when they are in another
	closers []func() error // of what is open, in the order of opening
}

// waitsForDir says why a start takes longer.
func (n *Node) waitsForDir(dir, process string) {
	n.o.Log.Warn("the data directory is in use; waiting for that process to end", "data", dir, "process", process, "at_most", lockWait)
}

// open acquires them; on an error nothing is left open.
func (n *Node) open(ctx context.Context) (_ *resources, err error) {
	res := &resources{metrics: newRegistry(n.o.Version), cluster: &peer.Cluster{}, failed: works}
	defer func() {
		if err != nil {
			err = errors.Join(err, res.close(err))
		}
	}()
	if res.dir, err = openDataDir(ctx, n.cfg.Data, time.Now(), n.waitsForDir); err != nil {
		return nil, err
	}
	res.opened(res.dir.close)
	if id := res.dir.cluster(); !id.IsZero() {
		if err := res.cluster.Set(id); err != nil {
			return nil, err
		}
	}
	if res.tcp, err = listen(ctx, n.cfg.Listen); err != nil {
		return nil, err
	}
	res.opened(res.tcp.Close)
	res.self = n.host(res.dir, n.cfg.Roles, advertised(n.cfg, res.tcp))
	if res.files, err = n.divideFiles(res.metrics); err != nil {
		return nil, err
	}
	res.guard = newGuard(n.o.Log, res.metrics, trustedNames(n.cfg, res.self.Address), res.files.connections)
	if n.cfg.clustered() {
		res.self.Roles = append(res.self.Roles, n.cfg.mark()...)
	}
	if n.cfg.usesCassandra() {
		if err := n.openCassandra(ctx, res); err != nil {
			return nil, err
		}
	}
	if err := n.openStores(ctx, res); err != nil {
		return nil, err
	}
	if err := n.openMembership(ctx, res); err != nil {
		return nil, err
	}
	res.mem = netmem.Listen(res.self.Address)
	res.opened(res.mem.Close)
	res.peers = peer.NewPool(peer.Config{Self: res.self.Address, SelfDial: res.mem.Dial, Cluster: res.cluster, Log: n.o.Log})
	res.opened(func() error { res.peers.Close(); return nil })
	if err := n.buildStores(res); err != nil {
		return nil, err
	}
	if err := n.openMetadata(ctx, res); err != nil {
		return nil, err
	}
	return res, nil
}

// host is who serves a data directory in this run.
func (n *Node) host(dir *dataDir, roles []string, addr string) membership.Host {
	return membership.Host{
		ID: dir.host.Host, Roles: slices.Clone(roles), Address: addr, Zone: n.cfg.Zone,
		Run: core.RunID{ID: core.NewID(time.Now())},
	}
}

// openMembership starts gossip in a cluster; a process alone knows who is there.
func (n *Node) openMembership(ctx context.Context, res *resources) (err error) {
	res.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "columba_server_foreign_hosts", Help: "Hosts of other clusters that gossip with this one; they do not become members.",
	}, func() float64 {
		if res.gossip == nil {
			return 0
		}
		return float64(len(res.gossip.Foreign()))
	}))
	if !n.cfg.clustered() {
		var others []membership.Host
		for _, s := range res.stores {
			others = append(others, s.self)
		}
		res.members, err = static.New(res.self, others...)
		return err
	}
	res.gossip, err = n.openGossip(ctx, res, gossip.Config{
		Self: res.self, Bind: n.cfg.gossipAddress(), Advertise: n.cfg.gossipAdvertise(), Join: n.cfg.Join,
	})
	if err != nil {
		return err
	}
	res.members = res.gossip
	host, _, _ := net.SplitHostPort(n.cfg.gossipAddress())
	for _, s := range res.stores {
		// Each host speaks for itself, so that all that is true of a host is true of each of them.
		_, err := n.openGossip(ctx, res, gossip.Config{
			Self: s.self, Bind: net.JoinHostPort(host, "0"), Advertise: n.cfg.gossipAdvertise(),
			Join: append([]string{res.gossip.Address()}, n.cfg.Join...),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) openGossip(ctx context.Context, res *resources, cfg gossip.Config) (*gossip.Monitor, error) {
	cfg.Log = n.o.Log.With("part", "gossip")
	cfg.Cluster = res.cluster.ID()
	cfg.Streams = res.files.gossip
	if cfg.Self.ID != res.self.ID {
		cfg.Log = cfg.Log.With("store", cfg.Self.ID)
	}
	m, err := gossip.New(cfg)
	if err != nil {
		return nil, err
	}
	if err := m.Start(ctx); err != nil {
		return nil, err
	}
	res.opened(func() error { return m.Stop(context.Background()) })
	res.gossips = append(res.gossips, m)
	return m, nil
}

// rivalWait bounds the wait for the others, of whom one may hold the metadata already.
const rivalWait = 5 * time.Second

// openMetadata opens the embedded metadata, or makes ready to ask the process that has them.
func (n *Node) openMetadata(ctx context.Context, res *resources) error {
	switch {
	case n.cfg.usesCassandra():
		return n.patiently(ctx, func() error {
			if err := res.ownCluster(ctx, "the keyspace", "name the Cassandra of that cluster with --metadata"); err != nil {
				return err
			}
			return migration.Use(ctx, res.meta) // once more: a copy may have begun since the first look
		})
	case n.cfg.holdsMetadata():
		return n.openEmbedded(ctx, res)
	}
	n.openRemote(res)
	return nil
}

// openRemote makes ready to ask another process.
func (n *Node) openRemote(res *resources) {
	res.finder = &finder{log: n.o.Log.With("part", membership.RoleMetadata), members: res.members, join: n.cfg.Join, met: res.meetCluster}
	conns := newTether(res.peers.Dial)
	client := &http.Transport{
		DialContext: conns.Dial, MaxIdleConnsPerHost: metadataConns, IdleConnTimeout: time.Minute, DisableCompression: true,
	}
	res.opened(func() error { client.CloseIdleConnections(); return nil })
	stop := res.members.Changed(func() {
		addr, _ := res.finder.locate() // "" while they are away
		conns.keep(addr)
	})
	res.opened(func() error { stop(); return nil })
	res.meta = remote.NewLocated(&http.Client{Transport: res.finder.watch(res.cluster.Transport(client))}, res.finder.locate, res.finder.relays)
	res.opened(res.meta.Close)
}

// openEmbedded opens the metadata in the data directory.
func (n *Node) openEmbedded(ctx context.Context, res *resources) error {
	if res.gossip != nil {
		if err := n.refuseSecond(ctx, res); err != nil {
			return err
		}
	}
	if err := res.dir.checkMetadata(); err != nil {
		return err
	}
	store, err := pebble.Open(res.dir.metadata(), res.files.tables, n.o.Log.With("part", "metadata"))
	if err != nil {
		return err
	}
	res.meta, res.failed = store, store.Failed
	res.opened(res.meta.Close)
	return res.ownCluster(ctx, "data directory "+res.dir.path, "start the process that holds them, with its own data directory; or, if that cluster's metadata are in Cassandra, start this one with its --metadata")
}

// metadataConns is how many connections to the metadata are kept for the next calls.
const metadataConns = 32

// refuseSecond ends the start when another live process holds the metadata of the cluster that this one joins.
func (n *Node) refuseSecond(ctx context.Context, res *resources) error {
	wait, cancel := context.WithTimeout(ctx, rivalWait)
	defer cancel()
	select {
	case <-res.gossip.Tried():
	case <-wait.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	res.copies = newCopies(res, n.cfg.Join)
	if err := res.copies.check(ctx, time.Now()); err != nil {
		return err
	}
	if other, ok := olderHolder(res.members); ok {
		return secondHolder(other)
	}
	if j := newJoiner(res, n.cfg.Join); !j.met() {
		return j.check(ctx)
	}
	return nil
}

func (r *resources) opened(close func() error) { r.closers = append(r.closers, close) }

// close releases in the reverse order, and returns what fails but for what is known already. Idempotent.
func (r *resources) close(known error) error {
	var errs []error
	for _, c := range slices.Backward(r.closers) {
		if err := c(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(known, err) { // the server closes its listeners itself
			errs = append(errs, err)
		}
	}
	r.closers = nil
	return errors.Join(errs...)
}
