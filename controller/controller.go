// Package controller owns where extents and the work of groups live: it creates extents, seals them, and gives every
// (group, extent) to an output host. It neither reads nor stores messages.
package controller

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// Config of a controller.
type Config struct {
	ReconcileEvery time.Duration // how often the wanted state is compared with what there is
	CallTimeout    time.Duration // of one call to a store or an output host
	SealsAtOnce    int           // seals that run side by side
}

// DefaultConfig is right for most clusters.
func DefaultConfig() Config {
	return Config{ReconcileEvery: 2 * time.Second, CallTimeout: 3 * time.Second, SealsAtOnce: 64}
}

// Deps are what the process gives to the role.
type Deps struct {
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Meta    metadata.Store
	Peers   *peer.Pool
	Members membership.Monitor
	Now     func() time.Time // nil: the system's clock
}

func (d Deps) now() time.Time {
	if d.Now != nil {
		return d.Now()
	}
	return time.Now()
}

// Host is the role. Start it once.
type Host struct {
	cfg     Config
	log     *slog.Logger
	deps    Deps
	metrics *metrics
	tasks   *lifecycle.Tasks // seals and rounds
	slots   chan struct{}    // seals under way
	extents *extents
	shares  *shares
	mu      struct {
		sync.Mutex
		seals   map[core.ExtentID]*sealing
		ensures map[ensureKey]*ensuring
		looking map[core.ExtentID]struct{} // extents that a round looks after just now
	}
}

// New makes the role; it does no I/O.
func New(cfg Config, deps Deps) (*Host, error) {
	if cfg.ReconcileEvery <= 0 || cfg.CallTimeout <= 0 || cfg.SealsAtOnce <= 0 {
		return nil, core.Errorf(core.CodeBadArgument, "controller: every setting must be above zero")
	}
	h := &Host{cfg: cfg, log: deps.Log.With("role", "controller"), deps: deps, metrics: newMetrics(deps.Metrics), tasks: lifecycle.NewTasks()}
	h.slots = make(chan struct{}, cfg.SealsAtOnce)
	h.extents = newExtents()
	h.shares = newShares(deps.now())
	h.mu.looking = make(map[core.ExtentID]struct{})
	h.mu.seals = make(map[core.ExtentID]*sealing)
	h.mu.ensures = make(map[ensureKey]*ensuring)
	return h, nil
}

// Name of the part.
func (h *Host) Name() string { return "controller" }

// Routes registers the controller's service.
func (h *Host) Routes(mux *http.ServeMux) {
	mux.Handle(columbav1connect.NewControllerServiceHandler(&service{h}))
}

// Start reads which extents there are.
func (h *Host) Start(ctx context.Context) error {
	if err := h.load(ctx); err != nil {
		return core.Errorf(core.CodeOf(err), "controller: read the extents: %w", err)
	}
	return nil
}

// Run reconciles until ctx ends. Events only make the next round come sooner.
func (h *Host) Run(ctx context.Context) error {
	tick := time.NewTicker(h.cfg.ReconcileEvery)
	defer tick.Stop()
	retire := time.NewTicker(retireEvery)
	defer retire.Stop()
	h.reconcile(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			h.reconcile(ctx)
		case <-retire.C:
			h.retireDeleted(ctx)
		case <-h.shares.wake:
			if err := h.assignTouched(ctx); err != nil && ctx.Err() == nil {
				h.log.Warn("cannot assign shares", "err", err)
			}
		}
	}
}

// Stop ends and joins all seals and calls.
func (h *Host) Stop(context.Context) error {
	h.tasks.Stop(core.Errorf(core.CodeDraining, "controller is stopping"))
	return nil
}

// candidates are the live hosts of a role.
func (h *Host) candidates(role string) []placement.Candidate {
	hosts := h.deps.Members.Hosts(role)
	out := make([]placement.Candidate, 0, len(hosts))
	for _, m := range hosts {
		out = append(out, placement.Candidate{ID: m.ID, Zone: m.Zone})
	}
	return out
}

// address of a live host, "" when it is not known.
func (h *Host) address(role string, id core.HostID) string {
	for _, m := range h.deps.Members.Hosts(role) {
		if m.ID == id {
			return m.Address
		}
	}
	return ""
}
