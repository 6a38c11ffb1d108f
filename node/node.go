// Package node owns the assembly of a process: its configuration, its data directory, its one port, its roles, and the order
// in which they start and stop.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/pebble"
)

// drainTimeout bounds what each part finishes when the process stops.
const drainTimeout = 10 * time.Second

// Options of a Node. Zero fields take the defaults.
type Options struct {
	Log     *slog.Logger // discards
	Version string       // of the build, for metrics
	// Ready is called once, when all roles serve.
	Ready func(Ready)
}

// Ready says where a process serves what.
type Ready struct {
	Addr  string // the address it advertises, with the real port
	Roles []string
	Data  string // absolute
}

// Line is the one line that a server prints when it is ready: `ready addr=… roles=… data=…`.
func (r Ready) Line() string {
	data := r.Data
	if slices.ContainsFunc([]rune(data), func(c rune) bool { return c <= ' ' || c == '"' }) {
		data = fmt.Sprintf("%q", data)
	}
	return fmt.Sprintf("ready addr=%s roles=%s data=%s", r.Addr, (*rolesValue)(&r.Roles), data)
}

// Node is a process. Run it once.
type Node struct {
	cfg   Config
	o     Options
	build func(*resources) ([]namedRole, error) // buildRoles, but for tests
}

// New checks the configuration. It does no I/O and starts nothing.
func New(cfg Config, o Options) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Ready == nil {
		o.Ready = func(Ready) {}
	}
	n := &Node{cfg: cfg, o: o}
	n.build = n.buildRoles
	return n, nil
}

// Run serves until ctx ends, then drains and returns nil. Any other end is an error; nothing is left behind either way.
func (n *Node) Run(ctx context.Context) (err error) {
	res, err := n.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, res.close()) }()
	roles, err := n.build(res)
	if err != nil {
		return err
	}
	var all pages
	srv := newServer(n.o.Log, res.metrics, &all, res.tcp, res.mem)
	parts := []lifecycle.Part{srv, &watch{failed: res.failed}}
	for _, r := range roles {
		parts = append(parts, all.add(r))
	}
	return lifecycle.Run(ctx, parts, lifecycle.Options{
		Log:          n.o.Log,
		DrainTimeout: drainTimeout,
		Ready: func() {
			srv.phase.Store(ready)
			n.o.Log.Info("ready", telemetry.KeyHost, res.self.ID, telemetry.KeyAddr, res.self.Address, "roles", n.cfg.Roles, "data", res.dir.path)
			n.o.Ready(Ready{Addr: res.self.Address, Roles: n.cfg.Roles, Data: res.dir.path})
		},
		Draining: func() {
			srv.phase.Store(draining)
			n.o.Log.Info("draining")
		},
	})
}

// resources are what the roles of a process stand on.
type resources struct {
	dir     *dataDir
	metrics *prometheus.Registry
	tcp     net.Listener
	mem     *netmem.Listener
	meta    metadata.Store
	self    membership.Host
	members membership.Monitor
	peers   *peer.Pool

	failed  func() error   // why the metadata refuses everything, nil while they work
	closers []func() error // of what is open, in the order of opening
}

// open acquires them; on an error nothing is left open.
func (n *Node) open(ctx context.Context) (_ *resources, err error) {
	res := &resources{metrics: newRegistry(n.o.Version)}
	defer func() {
		if err != nil {
			err = errors.Join(err, res.close())
		}
	}()
	if res.dir, err = openDataDir(n.cfg.Data, time.Now()); err != nil {
		return nil, err
	}
	res.opened(res.dir.close)
	if res.tcp, err = listen(ctx, n.cfg.Listen); err != nil {
		return nil, err
	}
	res.opened(res.tcp.Close)
	if err := res.dir.checkMetadata(); err != nil {
		return nil, err
	}
	store, err := pebble.Open(res.dir.metadata(), n.o.Log.With("part", "metadata"))
	if err != nil {
		return nil, err
	}
	res.meta, res.failed = store, store.Failed
	res.opened(res.meta.Close)
	res.self = membership.Host{
		ID: res.dir.host.Host, Roles: n.cfg.Roles, Address: advertised(n.cfg, res.tcp), Zone: n.cfg.Zone,
		Run: core.RunID{ID: core.NewID(time.Now())},
	}
	if res.members, err = static.New(res.self); err != nil {
		return nil, err
	}
	res.mem = netmem.Listen(res.self.Address)
	res.opened(res.mem.Close)
	res.peers = peer.NewPool(peer.Config{Self: res.self.Address, SelfDial: res.mem.Dial, Log: n.o.Log})
	res.opened(func() error { res.peers.Close(); return nil })
	return res, nil
}

func (r *resources) opened(close func() error) { r.closers = append(r.closers, close) }

// close releases in the reverse order. Idempotent.
func (r *resources) close() error {
	var errs []error
	for _, c := range slices.Backward(r.closers) {
		if err := c(); err != nil && !errors.Is(err, net.ErrClosed) { // the server closes its listeners itself
			errs = append(errs, err)
		}
	}
	r.closers = nil
	return errors.Join(errs...)
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, core.Errorf(core.CodeConflict, "listen on %s: %w; stop what uses the address, or choose another with --listen", addr, err)
	}
	return l, nil
}

// advertised is the address others use, with the port that was really taken.
func advertised(cfg Config, l net.Listener) string {
	if cfg.Advertise == "" {
		return l.Addr().String()
	}
	host, port, _ := net.SplitHostPort(cfg.Advertise) // valid: Config.Validate
	if port == "0" {
		_, port, _ = net.SplitHostPort(l.Addr().String())
	}
	return net.JoinHostPort(host, port)
}
