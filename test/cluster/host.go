package cluster

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/controller"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/frontend"
	"github.com/columbamq/columba/inputhost"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/internal/serving"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost"
	"github.com/columbamq/columba/storehost"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/memdisk"
)

// role is a part of a host.
type role interface {
	Routes(mux *http.ServeMux)
	Start(ctx context.Context) error
	Run(ctx context.Context) error
	Stop(ctx context.Context) error
}

// host is one process of the cluster, with one role, and what outlives it.
type host struct {
	c       *Cluster
	id      core.HostID
	kind    string // the role's name
	addr    string
	run     core.RunID
	disk    *memdisk.Disk // of a store
	skew    atomic.Int64  // ns, of the clock
	meta    *gate
	process *process // nil while it does not run
}

func (h *host) member() membership.Host {
	return membership.Host{ID: h.id, Roles: []string{h.kind}, Address: h.addr, Run: h.run}
}

// startTimeout bounds how long a role may take to start.
const startTimeout = 10 * time.Second

// start runs the process.
func (h *host) start() error {
	members, err := h.c.roster.join(h.member())
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(h.c.log, nil)).With("host", h.id)
	behind := h.c.behind
	if of := h.c.o.MetaOf; of != nil {
		behind = of(h.id, behind)
	}
	h.meta = &gate{Store: behind, net: h.c.net, addr: h.addr}
	if h.c.copies != nil {
		h.meta.majority = new(metadata.Majority)
	}
	p := &process{meta: h.meta, port: h.c.net.attach(h.addr)}
	p.pool = peer.NewPool(peer.Config{NetDial: p.port.dial, Log: log})
	if p.role, err = h.role(p, log, members); err != nil {
		return err
	}
	mux := http.NewServeMux()
	p.role.Routes(mux)
	mux.HandleFunc("GET "+peer.HealthPath, func(w http.ResponseWriter, _ *http.Request) { peer.Identify(w.Header(), h.id, h.run) })
	p.server = &http.Server{Handler: serving.EndOnPanic(mux), ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	p.server.Protocols = new(http.Protocols)
	p.server.Protocols.SetHTTP1(true)
	p.server.Protocols.SetUnencryptedHTTP2(true)
	ctx, cancel := context.WithTimeout(h.c.t.Context(), startTimeout)
	defer cancel()
	if err := p.role.Start(ctx); err != nil {
		h.c.roster.leave(h.id)
		p.pool.Close()
		return core.Errorf(core.CodeOf(err), "start %s: %w", h.id, err)
	}
	p.listener = p.port.listen()
	p.begin(func(err error) { h.c.t.Errorf("run %s: %v", h.id, err) })
	h.process = p
	h.c.acting.begin(h.id, p.role)
	return nil
}

// stop ends the process gracefully.
func (h *host) stop() {
	h.process.drain()
	h.process.end(h.c.t)
	h.process.port.kill()
	h.down()
}

// crash ends it at once: nobody sees what it does from now on. left makes its disk what it leaves.
func (h *host) crash(left func(*memdisk.Disk)) {
	p := h.process
	p.dead.Store(true)
	p.port.kill()
	p.meta.set(func(context.Context, Op) error { return core.Errorf(core.CodeUnavailable, "the process has crashed") })
	if h.disk != nil {
		left(h.disk)
	}
	h.c.wg.Go(func() { p.end(h.c.t) })
	h.down()
}

func (h *host) down() {
	h.process = nil
	h.c.acting.end(h.id)
	h.c.roster.leave(h.id)
	h.c.tell(h.id)
}

// now is the host's clock.
func (h *host) now() time.Time { return time.Now().Add(time.Duration(h.skew.Load())) }

func (h *host) role(p *process, log *slog.Logger, members membership.Monitor) (role, error) {
	reg := prometheus.NewRegistry()
	o, meta, pool := h.c.o, h.meta, p.pool
	switch h.kind {
	case "controller":
		cfg := controller.DefaultConfig()
		cfg.Alone = o.Controllers == 1
		edit(&cfg, o.Controller)
		return controller.New(cfg, controller.Deps{Log: log, Metrics: reg, Meta: meta, Peers: pool, Members: members, Now: h.now})
	case "outputhost":
		cfg := outputhost.DefaultConfig()
		edit(&cfg, o.Output)
		return outputhost.New(cfg, outputhost.Deps{Log: log, Metrics: reg, Meta: meta, Peers: pool, Members: members, Now: h.now})
	case "inputhost":
		cfg := inputhost.DefaultConfig()
		edit(&cfg, o.Input)
		return inputhost.New(cfg, inputhost.Deps{Log: log, Metrics: reg, Meta: meta, Peers: pool, Members: members, Now: h.now})
	case "frontend":
		cfg := frontend.DefaultConfig()
		cfg.Replicas = o.Replicas
		return frontend.New(cfg, frontend.Deps{Log: log, Metrics: reg, Meta: meta, Peers: pool, Members: members})
	}
	cfg := storehost.DefaultConfig()
	cfg.Dir = memdisk.Dir
	open := func(_ string, o extentlog.Options) (extentlog.Log, error) {
		log, err := h.disk.Open(o)
		p.log = log
		return log, err
	}
	return storehost.New(cfg, storehost.Deps{Log: log, Metrics: reg, Self: h.id, Run: h.run, Open: open, Now: h.now, Confirm: storehost.Controllers{Peers: pool, Members: members}})
}

func edit[T any](cfg *T, f func(*T)) {
	if f != nil {
		f(cfg)
	}
}
