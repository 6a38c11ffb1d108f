// Package frontend owns the public API: queues, groups, routes, and the calls that it forwards to the host that can
// answer them. It keeps no state of its own but the answers of the metadata a moment ago.
package frontend

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/frontend/bodies"
	"github.com/columbamq/columba/frontend/gate"
	"github.com/columbamq/columba/frontend/publishers"
	"github.com/columbamq/columba/frontend/turns"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/internal/retell"
	"github.com/columbamq/columba/internal/serving"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// Deps are what a frontend stands on. All fields are needed.
type Deps struct {
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Meta    metadata.Store
	Peers   *peer.Pool
	Members membership.Monitor
}

// Host is the frontend role of a process. Its calls may come from any number of goroutines.
type Host struct {
	svc       *service
	reg       prometheus.Registerer
	stopPolls context.CancelFunc
}

// New checks the configuration. It does no I/O and starts nothing.
func New(cfg Config, deps Deps) (*Host, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.MinReplicas == 0 {
		cfg.MinReplicas = min(2, cfg.Replicas)
	}
	draining, stopPolls := context.WithCancel(context.Background())
	svc := &service{
		cfg: cfg, log: deps.Log.With(telemetry.KeyRole, "frontend"), metrics: newMetrics(deps.Metrics),
		meta: metadata.Refusing(deps.Meta), shown: metadata.QuorumOrOne(deps.Meta), peers: deps.Peers, members: deps.Members, now: time.Now, began: time.Now(), draining: draining,
		counts: newQueueCounts(), calls: gate.New(cfg.MaxCalls, cfg.MaxPolls), turns: turns.New(pullTurns),
	}
	svc.known = newKnown(func() time.Time { return svc.now() })
	svc.retell = retell.New(svc.toldOfQueue, retellFor, time.Now)
	svc.keys.Store(&tokenKeys{})
	svc.publishers = publishers.New(cfg.MaxPublishers, cfg.PublisherIdle, svc.newPublisher)
	return &Host{svc: svc, reg: deps.Metrics, stopPolls: stopPolls}, nil
}

// Routes adds AdminService and MessageService. They refuse calls before Start and after Stop.
func (h *Host) Routes(mux *http.ServeMux) {
	o := serving.Options{Request: h.svc.cfg.MaxRequest, Log: h.svc.log, Recover: true, Metrics: h.reg, More: []connect.HandlerOption{
		connect.WithInterceptors(connect.UnaryInterceptorFunc(h.svc.intercept)),
		connect.WithCodec(bodies.StrictJSON("json")), connect.WithCodec(bodies.StrictJSON("json; charset=utf-8")),
	}}
	handle := func(path string, service http.Handler) { mux.Handle(path, bodies.Limit(h.svc.cfg.MaxRequest, service)) }
	handle(serving.Handler(columbav1connect.NewAdminServiceHandler, columbav1connect.AdminServiceHandler(h.svc), o))
	handle(serving.Handler(columbav1connect.NewMessageServiceHandler, columbav1connect.MessageServiceHandler(h.svc), o))
}

// Start loads what the cluster has in common, making it in a new cluster, and opens the API. It may be called again
// after an error: CodeUnavailable and others while the metadata do not answer.
func (h *Host) Start(ctx context.Context) error {
	if err := h.svc.load(ctx); err != nil {
		return err
	}
	h.svc.publishers.Open()
	h.svc.calls.Open()
	return nil
}

// load reads the token keys and the settings of the cluster.
func (s *service) load(ctx context.Context) error {
	if err := s.loadKeys(ctx); err != nil {
		return err
	}
	return s.loadCopies(ctx)
}

// Run closes publishers that nobody uses, and tells controllers of changes again, until ctx ends. Then long polls end
// with what they have, and Run waits for the calls under way, at most Config.DrainTimeout; further calls are still
// answered.
func (h *Host) Run(ctx context.Context) error {
	sweeps := time.NewTicker(h.svc.cfg.PublisherIdle / 4)
	defer sweeps.Stop()
	var retelling sync.WaitGroup
	defer retelling.Wait()
	retelling.Go(func() { lifecycle.Every(ctx, retell.Every, h.svc.retell.Round) })
	for {
		select {
		case <-sweeps.C:
			h.svc.publishers.Sweep()
			continue
		case <-ctx.Done():
		}
		break
	}
	h.stopPolls()
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.svc.cfg.DrainTimeout)
	defer cancel()
	if err := h.svc.calls.Wait(draining); err != nil {
		h.svc.log.Warn("stopping with calls under way", "waited", h.svc.cfg.DrainTimeout)
	}
	return nil
}

// Stop refuses further calls, ends long polls, waits for the calls under way until ctx ends, and closes the publishers
// and what reads on. Idempotent.
func (h *Host) Stop(ctx context.Context) error {
	h.svc.calls.Close()
	h.stopPolls()
	err := h.svc.calls.Wait(ctx)
	h.svc.publishers.Close()
	h.svc.known.close()
	return err
}
