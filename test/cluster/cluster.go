// Package cluster owns clusters for tests: every role on a host of its own, in one process, on an in-memory network, over shared
// metadata in memory and stores in temporary directories. Made inside a testing/synctest bubble, hours pass in milliseconds.
package cluster

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/controller"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/frontend"
	"github.com/columbamq/columba/inputhost"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
	"github.com/columbamq/columba/outputhost"
	"github.com/columbamq/columba/storehost"
)

// Names of the hosts of a cluster; stores are Store(0), Store(1) and so on.
const (
	Controller core.HostID = "controller-0"
	Output     core.HostID = "output-0"
	Input      core.HostID = "input-0"
	Frontend   core.HostID = "frontend-0"
)

// Store is the id of a store.
func Store(i int) core.HostID { return core.HostID("store-" + string(rune('0'+i))) }

// Options of a cluster. Zero fields take the roles' defaults.
type Options struct {
	Stores     int // 1; queues have as many replicas
	Controller func(*controller.Config)
	Input      func(*inputhost.Config)
	Output     func(*outputhost.Config)
	Meta       func(metadata.Store) metadata.Store // stands before the metadata, for faults
}

// Cluster is a running cluster. Its methods are for one goroutine.
type Cluster struct {
	Client *client.Client
	Meta   metadata.Store // as it is, without faults

	t      testing.TB
	o      Options
	dir    string
	net    *network
	behind metadata.Store // what hosts use
	hosts  map[core.HostID]*host
	order  []core.HostID
	log    *logs
}

// Start starts a cluster; the test's end stops it. dir holds the stores.
func Start(t testing.TB, dir string, o Options) *Cluster {
	t.Helper()
	if o.Stores == 0 {
		o.Stores = 1
	}
	c := &Cluster{Meta: memory.New(), t: t, o: o, dir: dir, net: newNetwork(), hosts: make(map[core.HostID]*host), log: &logs{}}
	c.behind = c.Meta
	if o.Meta != nil {
		c.behind = o.Meta(c.Meta)
	}
	for i := range o.Stores {
		c.order = append(c.order, Store(i))
	}
	c.order = append(c.order, Controller, Output, Input, Frontend)
	for _, id := range c.order {
		c.hosts[id] = &host{c: c, id: id, addr: string(id) + ":1", up: true, run: newRun()}
	}
	for _, id := range c.order {
		c.hosts[id].start()
	}
	var err error
	c.Client, err = client.Dial(t.Context(), c.hosts[Frontend].addr, client.WithName("test"), client.WithNetDial(c.net.dialFrom("client")))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Close stops everything, gracefully. A bubble must not end without it.
func (c *Cluster) Close() {
	c.t.Helper()
	if err := c.Client.Close(); err != nil {
		c.t.Errorf("close the client: %v", err)
	}
	for i := len(c.order) - 1; i >= 0; i-- {
		if h := c.hosts[c.order[i]]; h.process != nil {
			h.stop()
		}
	}
	c.behind.Close()
	if c.t.Failed() {
		c.t.Logf("logs of the hosts:\n%s", c.log.text())
	}
}

// Restart stops hosts gracefully and starts them again as new runs.
func (c *Cluster) Restart(ids ...core.HostID) {
	c.t.Helper()
	c.eachDown(ids, (*host).stop)
	c.Up(ids...)
}

// Crash ends hosts at once: connections break and nothing more is saved; what the disk was given stays.
func (c *Cluster) Crash(ids ...core.HostID) {
	c.t.Helper()
	c.eachDown(ids, (*host).crash)
}

// All are the ids of all hosts.
func (c *Cluster) All() []core.HostID { return c.order }

func (c *Cluster) eachDown(ids []core.HostID, down func(*host)) {
	for i := len(ids) - 1; i >= 0; i-- {
		down(c.hosts[ids[i]])
	}
}

// Up starts hosts that are down, as new runs, in the order of starting a cluster.
func (c *Cluster) Up(ids ...core.HostID) {
	c.t.Helper()
	for _, id := range ids {
		c.hosts[id].run, c.hosts[id].up = newRun(), true
	}
	c.tellMembers()
	for _, id := range c.order {
		if h := c.hosts[id]; h.up && h.process == nil {
			h.start()
		}
	}
}

// Cut breaks the connections between two hosts; they may be made again.
func (c *Cluster) Cut(a, b core.HostID) {
	x, y := c.hosts[a].addr, c.hosts[b].addr
	c.net.cut(func(from, to string) bool { return from == x && to == y || from == y && to == x })
}

// CutClients breaks the connections of clients to a host.
func (c *Cluster) CutClients(id core.HostID) {
	c.net.cut(func(from, to string) bool { return from == "client" && to == c.hosts[id].addr })
}

// Hold stops all traffic from and to a host until release.
func (c *Cluster) Hold(id core.HostID) (release func()) { return c.net.hold(c.hosts[id].addr) }

// OnMeta makes f decide about each call of a host to the metadata; nil lets all pass. A restart takes it away.
func (c *Cluster) OnMeta(id core.HostID, f func(ctx context.Context, op Op) error) {
	c.hosts[id].meta.set(f)
}

// Members are the hosts that are up.
func (c *Cluster) members() []membership.Host {
	var out []membership.Host
	for _, id := range c.order {
		if h := c.hosts[id]; h.up {
			out = append(out, h.member())
		}
	}
	return out
}

func (c *Cluster) tellMembers() {
	for _, h := range c.hosts {
		if h.process != nil {
			if err := h.members.Set(c.members()); err != nil {
				c.t.Error(err)
			}
		}
	}
}

func newRun() core.RunID { return core.RunID{ID: core.NewID(time.Now())} }

// role is a part of a host.
type role interface {
	Routes(mux *http.ServeMux)
	Start(ctx context.Context) error
	Run(ctx context.Context) error
	Stop(ctx context.Context) error
}

// host is one process of the cluster, with one role.
type host struct {
	c       *Cluster
	id      core.HostID
	addr    string
	run     core.RunID
	up      bool // as membership says
	members *static.Monitor
	meta    *gate
	process *process // nil while it does not run
}

func (h *host) kind() string {
	return map[core.HostID]string{Controller: "controller", Output: "outputhost", Input: "inputhost", Frontend: "frontend"}[h.id]
}

func (h *host) member() membership.Host {
	role := h.kind()
	if role == "" {
		role = "storehost"
	}
	return membership.Host{ID: h.id, Roles: []string{role}, Address: h.addr, Run: h.run}
}

func (h *host) start() {
	t := h.c.t
	t.Helper()
	var err error
	if h.members, err = static.New(h.member(), others(h.c.members(), h.id)...); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(h.c.log, nil)).With("host", h.id)
	h.meta = &gate{Store: h.c.behind}
	pool := peer.NewPool(peer.Config{NetDial: h.c.net.dialFrom(h.addr), Log: log})
	r, err := h.role(log, pool)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	r.Routes(mux)
	srv := &http.Server{Handler: mux, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	if err := r.Start(t.Context()); err != nil {
		t.Fatalf("start %s: %v", h.id, err)
	}
	p := &process{role: r, server: srv, pool: pool, meta: h.meta, listener: h.c.net.listen(h.addr)}
	p.begin(func(err error) { t.Errorf("run %s: %v", h.id, err) })
	h.process = p
}

// stop ends a host gracefully.
func (h *host) stop() {
	h.process.drain()
	h.process.end(h.c.t)
	h.down()
}

// crash ends it at once.
func (h *host) crash() {
	h.process.meta.set(func(context.Context, Op) error { return core.Errorf(core.CodeUnavailable, "the process has crashed") })
	h.process.listener.Close()
	h.c.net.cut(func(from, to string) bool { return from == h.addr || to == h.addr })
	h.process.end(h.c.t)
	h.down()
}

func (h *host) down() {
	h.process, h.up = nil, false
	h.c.tellMembers()
}

func others(all []membership.Host, id core.HostID) []membership.Host {
	var out []membership.Host
	for _, m := range all {
		if m.ID != id {
			out = append(out, m)
		}
	}
	return out
}

func (h *host) role(log *slog.Logger, pool *peer.Pool) (role, error) {
	reg := prometheus.NewRegistry()
	switch h.id {
	case Controller:
		cfg := controller.DefaultConfig()
		edit(&cfg, h.c.o.Controller)
		return controller.New(cfg, controller.Deps{Log: log, Metrics: reg, Meta: h.meta, Peers: pool, Members: h.members})
	case Output:
		cfg := outputhost.DefaultConfig()
		edit(&cfg, h.c.o.Output)
		return outputhost.New(cfg, outputhost.Deps{Log: log, Metrics: reg, Meta: h.meta, Peers: pool, Members: h.members})
	case Input:
		cfg := inputhost.DefaultConfig()
		edit(&cfg, h.c.o.Input)
		return inputhost.New(cfg, inputhost.Deps{Log: log, Metrics: reg, Meta: h.meta, Peers: pool, Members: h.members})
	case Frontend:
		cfg := frontend.DefaultConfig()
		cfg.Replicas = h.c.o.Stores
		return frontend.New(cfg, frontend.Deps{Log: log, Metrics: reg, Meta: h.meta, Peers: pool, Members: h.members})
	}
	cfg := storehost.DefaultConfig()
	cfg.Dir = filepath.Join(h.c.dir, string(h.id))
	return storehost.New(cfg, storehost.Deps{Log: log, Metrics: reg, Self: h.id, Run: h.run})
}

func edit[T any](cfg *T, f func(*T)) {
	if f != nil {
		f(cfg)
	}
}

// logs keeps the last of what the hosts say, for failed tests.
type logs struct {
	mu struct {
		sync.Mutex
		buf bytes.Buffer
	}
}

const maxLogs = 1 << 20

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.buf.Len() > maxLogs {
		l.mu.buf.Next(maxLogs / 2)
	}
	return l.mu.buf.Write(b)
}

func (l *logs) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.buf.String()
}
