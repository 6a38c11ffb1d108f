package outputhost

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/internal/serving"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost/budget"
	"github.com/columbamq/columba/outputhost/cancels"
	"github.com/columbamq/columba/outputhost/deadlines"
	"github.com/columbamq/columba/outputhost/inspect"
	"github.com/columbamq/columba/outputhost/lease"
	"github.com/columbamq/columba/outputhost/sources"
	"github.com/columbamq/columba/wire/ws"
)

// New makes the role; it does no I/O.
func New(cfg Config, deps Deps) (*Host, error) {
	least := min(cfg.CheckpointAcks, cfg.CheckpointRows, cfg.ReadAhead, cfg.ReadMemory, cfg.HoldMemory, cfg.UnreadMemory, cfg.MaxCredit, cfg.GroupConsumers,
		cfg.Links.Connections, cfg.Links.Streams, cfg.Links.PerConnection)
	if least <= 0 || min(cfg.CheckpointEvery, cfg.CheckpointBusy, cfg.CheckpointMost, cfg.RefreshEvery, cfg.RelistEvery, cfg.CallTimeout) <= 0 {
		return nil, core.Errorf(core.CodeBadArgument, "output host: every setting must be above zero")
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Random == nil {
		deps.Random = rand.Float64
	}
	h := &Host{cfg: cfg, log: deps.Log.With("role", "outputhost"), deps: deps, metrics: newMetrics(deps.Metrics), tasks: lifecycle.NewTasks()}
	h.remote = telemetry.LimitBySource(h.log)
	h.clients = ws.NewAdmission(cfg.Links, h.tasks.Go)
	h.epoch = deps.Now().Add(-time.Hour)
	h.deadlines = deadlines.New[*group]()
	h.saver = newSaver(h)
	h.inspector = inspect.New(inspect.Config{Log: h.log, SearchBytes: cfg.SearchBytes}, inspectedHost{h})
	h.mover = newMover(h)
	h.sources = sources.New(deps.Members)
	h.memory = budget.New(cfg.HoldMemory)
	h.unread = budget.New(cfg.UnreadMemory)
	h.notes = budget.New(cfg.HoldMemory / notesPart)
	h.leases = lease.New(lease.Config{Members: deps.Members, Log: h.log, Lapses: h.metrics.lapses}, leased{h})
	h.openings = newOpenings()
	h.cancels = cancels.New(deps.Meta, deps.Now)
	h.accepting = make(chan struct{}, 1)
	h.relisting = make(chan struct{}, 1)
	h.routing = make(chan struct{}, 1)
	h.transferred = make(chan struct{}, 1)
	h.mu.groups = make(map[core.GroupID]*group)
	h.mu.byQueue = make(map[core.QueueID][]*group)
	h.mu.lists, h.mu.minority = make(map[core.QueueID]*queueList), make(map[core.QueueID][]*queueList)
	h.mu.sessions = make(map[*session]struct{})
	deps.Metrics.MustRegister(newGroupMetrics(h))
	h.saver.line.register(deps.Metrics, func() time.Duration { return h.elapsed(h.deps.Now()) })
	return h, nil
}

// Name of the part.
func (h *Host) Name() string { return "outputhost" }

// Routes registers the consume websocket and the RPCs.
func (h *Host) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/consume", h.serveConsume)
	mux.Handle(serving.Handler(columbav1connect.NewOutputServiceHandler, columbav1connect.OutputServiceHandler(&service{h: h}), serving.Options{Request: serving.MaxRequest}))
}

// Start reads the keys of delivery tokens.
func (h *Host) Start(ctx context.Context) error {
	keys, err := metadata.TokenKeys(ctx, h.deps.Meta, h.deps.Now())
	if err != nil {
		return core.Errorf(core.CodeOf(err), "output host: read the token keys: %w", err)
	}
	h.keys = keys
	return nil
}

// Run delivers until ctx ends, then drains: it tells consumers to go elsewhere, waits for appends and checkpoints.
func (h *Host) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { h.relist(ctx) })
	loops.Go(func() { lifecycle.Every(ctx, h.cfg.RefreshEvery, h.refresh) })
	loops.Go(func() { h.deadlines.Run(ctx, h.deps.Now, (*group).pump) })
	loops.Go(func() { h.saver.run(ctx) })
	loops.Go(func() { h.watch(ctx) })
	loops.Go(func() { onEach(ctx, h.routing, h.tellRoutes) }) // the metadata may be slow
	loops.Go(func() { h.leases.Run(ctx) })
	loops.Go(func() { onEach(ctx, h.openings.again, h.tellOpenings) })
	<-ctx.Done()
	h.draining.Store(true) // the last checkpoint says that nothing is handed out after it
	h.tellRoutes(h.tasks.Context())
	for _, s := range h.sessionList() {
		s.drain()
	}
	loops.Wait()
	h.awaitTransfers(h.tasks.Context())
	last, cancel := context.WithTimeout(h.tasks.Context(), h.cfg.CallTimeout)
	defer cancel()
	h.saver.save(last, h.saver.all(true), true)
	return nil
}

// Stop ends all sessions, joins all goroutines and saves what was settled since the drain.
func (h *Host) Stop(ctx context.Context) error {
	h.draining.Store(true)
	h.mu.Lock()
	h.mu.stopped = true
	h.mu.Unlock()
	for _, g := range h.groupList() {
		g.close()
	}
	h.tasks.Stop(core.Errorf(core.CodeDraining, "output host is stopping"))
	last, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	h.saver.save(last, h.saver.all(true), true)
	return nil
}
