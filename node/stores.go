package node

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/storehost"
)

// extraStore is a further store host in the process: a host to all others, with an identity, a directory, a port and
// metrics of its own.
type extraStore struct {
	name    string
	dir     *dataDir
	tcp     net.Listener
	metrics *prometheus.Registry
	self    membership.Host
	server  *server
	role    *gated
}

// openStores opens the second and further store hosts that the configuration asks for.
func (n *Node) openStores(ctx context.Context, res *resources) error {
	n.warnOfUnserved(res)
	for i := 2; i <= n.cfg.Stores; i++ {
		dir := res.dir.extra(i)
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			return res.dir.fileError(err)
		}
		s, err := n.openStore(ctx, res, i)
		if err != nil {
			return err
		}
		res.stores = append(res.stores, s)
	}
	return nil
}

func (n *Node) openStore(ctx context.Context, res *resources, i int) (*extraStore, error) {
	s := &extraStore{name: RoleStore + "-" + strconv.Itoa(i), metrics: newRegistry(n.o.Version)}
	var err error
	if s.dir, err = openDataDir(ctx, res.dir.extra(i), res.self.Run.Time(), n.waitsForDir); err != nil {
		return nil, err
	}
	res.opened(s.dir.close)
	host, _, _ := net.SplitHostPort(n.cfg.Listen) // valid: Config.Validate
	if s.tcp, err = listen(ctx, net.JoinHostPort(host, "0")); err != nil {
		return nil, err
	}
	res.opened(s.tcp.Close)
	address := s.tcp.Addr().String()
	if n.cfg.Advertise != "" {
		host, _, _ := net.SplitHostPort(n.cfg.Advertise)
		_, port, _ := net.SplitHostPort(address)
		address = net.JoinHostPort(host, port)
	}
	s.self = n.host(s.dir, []string{RoleStore}, address)
	return s, nil
}

// controllers are those that store hosts of the process ask.
func (r *resources) controllers() storehost.Controllers {
	return storehost.Controllers{Peers: r.peers, Members: r.members}
}

// buildStores makes the roles and the servers of the further store hosts.
func (n *Node) buildStores(res *resources) error {
	for _, s := range res.stores {
		if err := n.buildStore(res, s); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) buildStore(res *resources, s *extraStore) error {
	cfg := storehost.DefaultConfig()
	cfg.Dir = s.dir.store()
	log := n.o.Log.With(telemetry.KeyHost, s.self.ID)
	role, err := storehost.New(cfg, storehost.Deps{
		Log: log, Metrics: s.metrics, Self: s.self.ID, Run: s.self.Run, Tables: res.files.tables, Confirm: res.controllers(),
	})
	if err != nil {
		return err
	}
	var all pages
	s.role = all.add(namedRole{s.name, role})
	s.server = newServer(log, s.metrics, res.guard, res.cluster.Guard(log, &all), s.tcp)
	s.server.name, s.server.self = s.name+" server", s.self
	return nil
}

// parts in the order in which they start.
func (s *extraStore) parts() []lifecycle.Part { return []lifecycle.Part{s.server, s.role} }

// warnOfUnserved says that replicas of an earlier run with more stores are out of reach now.
func (n *Node) warnOfUnserved(res *resources) {
	next := res.dir.extra(n.cfg.Stores + 1)
	if _, err := os.Stat(next); !errors.Is(err, fs.ErrNotExist) {
		n.o.Log.Warn("a store of an earlier run is not served, so its replicas are missing; start with the old --stores to serve it", "data", next)
	}
}
