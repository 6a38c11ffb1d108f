// Package node owns the assembly of a process: its configuration, its data directory, its one port, its roles, and the
// order in which they start and stop.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/internal/telemetry"
)

// drainTimeout bounds what each part finishes when the process stops.
const drainTimeout = 10 * time.Second

// failedDrain bounds the same when the metadata have failed: most parts cannot finish without them, and a port that
// only refuses is better closed, so that the supervisor starts the process again.
const failedDrain = 250 * time.Millisecond

// startTimeout bounds the start of each part. Finding the metadata takes the longest.
const startTimeout = metadataWait + 15*time.Second

// Options of a Node. Zero fields take the defaults.
type Options struct {
	Log     *slog.Logger // discards
	Version string       // of the build, for metrics
	// Ready is called once, when all roles serve.
	Ready func(Ready)
}

// Ready says where a process serves what.
type Ready struct {
	Addr   string // the address it advertises, with the real port
	Roles  []string
	Data   string // absolute
	Gossip string // the address to join, with the real port; empty without gossip
}

// Line is the one line that a server prints when it is ready: `ready addr=… roles=… data=…`, and in a cluster
// `gossip=…`.
func (r Ready) Line() string {
	data := r.Data
	if slices.ContainsFunc([]rune(data), func(c rune) bool { return c <= ' ' || c == '"' }) {
		data = fmt.Sprintf("%q", data)
	}
	line := fmt.Sprintf("ready addr=%s roles=%s data=%s", r.Addr, (*rolesValue)(&r.Roles), data)
	if r.Gossip != "" {
		line += " gossip=" + r.Gossip
	}
	return line
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
	defer func() { err = errors.Join(err, res.close(err)) }()
	roles, err := n.build(res)
	if err != nil {
		return err
	}
	var all pages
	srv := newServer(n.o.Log, res.metrics, res.guard, res.cluster.Guard(n.o.Log, &all), res.tcp, res.mem)
	srv.self, srv.dead = res.self, res.failed
	parts := []lifecycle.Part{srv}
	for _, r := range n.foundation(res) {
		parts = append(parts, all.add(r))
	}
	for _, st := range res.stores {
		parts = append(parts, st.parts()...)
	}
	for _, r := range roles {
		part := all.add(r)
		if readsMetadata(r.name) {
			part.patiently = n.patiently
		}
		parts = append(parts, part)
	}
	return lifecycle.Run(ctx, parts, lifecycle.Options{
		Log:          n.o.Log,
		StartTimeout: startTimeout,
		DrainTimeout: drainTimeout,
		Ready: func() {
			srv.phase.Store(ready)
			r := Ready{Addr: res.self.Address, Roles: n.cfg.Roles, Data: res.dir.path}
			if res.gossip != nil {
				r.Gossip = res.gossip.Address()
			}
			n.o.Log.Info("ready", telemetry.KeyHost, res.self.ID, telemetry.KeyAddr, r.Addr, "roles", r.Roles, "data", r.Data, "gossip", r.Gossip)
			n.o.Ready(r)
		},
		Draining: func(failure error) time.Duration {
			log := n.o.Log
			if failure != nil {
				srv.failure.Store(&failure)
				log = log.With("after", failure)
			}
			srv.phase.Store(draining)
			log.Info("draining")
			if res.failed() != nil {
				return failedDrain
			}
			return 0
		},
	})
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			err = op.Err // without the address once more
		}
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
