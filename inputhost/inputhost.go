// Package inputhost owns the publish path: it accepts records from publishers, is the single writer of each of its
// extents, and acknowledges records that every replica has on disk.
package inputhost

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/tenant"
	"github.com/columbamq/columba/inputhost/writer"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire/ws"
)

// Config of an input host.
type Config struct {
	AppendDeadline  time.Duration // a store that does not acknowledge for longer is evicted: all its extents end
	SlowStore       time.Duration // a store that takes longer at a stretch of SlowFor is evicted, too, if another does not
	SlowFor         time.Duration
	StuckStore      time.Duration // a store that acknowledges nothing, while another replica has what it owes, is evicted after it
	PublishDeadline time.Duration // after it a publish without an answer is reported as unknown
	MinOpenExtents  int           // of a queue while it is published to; 0: 2 when there are several stores, else 1
	ExtentRate      uint64        // bytes per second over which a queue gets another extent
	RollBytes       uint64        // an extent is replaced at this size
	RollAge         time.Duration // … or at this age
	IdleAfter       time.Duration // an extent nobody published to is sealed without replacement
	Window          int           // bytes a publisher may have in flight on one stream
	MaxInFlight     int64         // bytes in flight on the whole host; at it publishers are told to wait
	Links           ws.Limits     // connections of publishers and their streams; more are refused
}

// DefaultConfig is right for most clusters.
func DefaultConfig() Config {
	return Config{
		AppendDeadline:  5 * time.Second,
		SlowStore:       500 * time.Millisecond,
		SlowFor:         5 * time.Second,
		StuckStore:      1500 * time.Millisecond,
		PublishDeadline: 30 * time.Second,
		ExtentRate:      32 << 20,
		RollBytes:       256 << 20,
		RollAge:         30 * time.Minute,
		IdleAfter:       time.Minute,
		Window:          8 << 20,
		MaxInFlight:     512 << 20,
		Links:           ws.Limits{Connections: 16_384, Streams: 200_000, PerConnection: 10_000},
	}
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

// Host is the role. Start it once. Lock order: mu, a queue's, the tenants'.
type Host struct {
	cfg      Config
	log      *slog.Logger
	remote   *slog.Logger // for lines that clients cause
	deps     Deps
	metrics  *metrics
	tasks    *lifecycle.Tasks // sessions, and what opens and refreshes queues
	stores   *stores
	links    *links
	clock    *clock
	clients  *ws.Admission
	teller   *teller
	settings *settings
	replaced replaced
	tenants  *tenant.Tenants
	openings gate
	sealings gate
	inFlight atomic.Int64 // bytes taken and not answered, with chunkCost for each chunk
	lists    uint64       // version of the last list of hosts that publishers were told; Run's own
	mu       struct {
		sync.Mutex
		queues   map[queueKey]*queue // those with a stream or a writer; a queue made again under its path is another one
		sessions map[*session]struct{}
		draining bool // takes no new connections
	}
}

// New makes the role; it does no I/O.
func New(cfg Config, deps Deps) (*Host, error) {
	if cfg.Window <= 0 || cfg.Links.Connections <= 0 || cfg.Links.Streams <= 0 || cfg.Links.PerConnection <= 0 || cfg.RollBytes == 0 || cfg.AppendDeadline <= 0 || cfg.PublishDeadline <= 0 || cfg.SlowStore <= 0 || cfg.StuckStore <= 0 || cfg.ExtentRate == 0 {
		return nil, core.Errorf(core.CodeBadArgument, "input host: window, streams, roll bytes, deadlines and rates must be above zero")
	}
	h := &Host{
		cfg: cfg, log: deps.Log.With("role", "inputhost"), deps: deps, metrics: newMetrics(deps.Metrics), tasks: lifecycle.NewTasks(),
		stores:   newStores(storeLimits{deadline: cfg.AppendDeadline, slow: cfg.SlowStore, slowFor: cfg.SlowFor, stuck: cfg.StuckStore}),
		links:    newLinks(),
		clock:    &clock{},
		teller:   newTeller(),
		openings: newGate(atOnce), sealings: newGate(atOnce),
	}
	h.remote = telemetry.LimitBySource(h.log)
	h.clients = ws.NewAdmission(cfg.Links, h.tasks.Go)
	h.settings = newSettings(h)
	h.tenants = tenant.New(tenant.Deps{
		Log: h.log, Meta: deps.Meta, Now: deps.now, Order: h.order, Lease: h.leaseQuota,
		Hosts: func() int { return len(deps.Members.Hosts("inputhost")) },
	})
	h.mu.queues = make(map[queueKey]*queue)
	h.mu.sessions = make(map[*session]struct{})
	return h, nil
}

// Name of the part.
func (h *Host) Name() string { return "inputhost" }

// Routes registers the publish websocket.
func (h *Host) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/publish", h.servePublish)
}

// Start has nothing to acquire: extents are opened by the first publish.
func (h *Host) Start(context.Context) error { return nil }

// Run watches deadlines, ages and idleness until ctx ends, then drains.
func (h *Host) Run(ctx context.Context) error {
	h.tasks.Go(h.teller.run)
	h.tasks.Go(h.watchClock)
	h.tasks.Go(h.settings.watch)
	h.tasks.Go(h.settings.run)
	h.tasks.Go(h.tenants.Watch)
	h.tasks.Go(h.tenants.Run)
	t := &ticker{h: h, lags: make(map[core.HostID]lag)}
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	changed := make(chan struct{}, 1)
	defer h.deps.Members.Changed(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	inputs := h.deps.Members.Hosts("inputhost")
	h.stores.members(h.deps.Members.Hosts("storehost"))
	for {
		select {
		case <-ctx.Done():
			h.drain()
			return nil
		case <-changed:
			was := inputs
			inputs = h.deps.Members.Hosts("inputhost")
			h.reconfigure(was, inputs)
			h.stores.members(h.deps.Members.Hosts("storehost"))
		case <-tick.C:
			t.tick(h.deps.now())
		}
	}
}

// drain tells publishers to go elsewhere and seals what is open, as far as that is done within a few seconds.
func (h *Host) drain() {
	h.mu.Lock()
	h.mu.draining = true
	sessions := make([]*session, 0, len(h.mu.sessions))
	for s := range h.mu.sessions {
		sessions = append(sessions, s)
	}
	h.mu.Unlock()
	for _, s := range sessions {
		s.drain()
	}
	ctx, cancel := context.WithTimeout(h.tasks.Context(), 5*time.Second)
	defer cancel()
	queues := h.list()
	for _, q := range queues {
		q.beginClose()
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for _, q := range queues {
		for q.unsealed() > 0 {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// Stop ends all sessions and joins all goroutines.
func (h *Host) Stop(context.Context) error {
	h.mu.Lock()
	h.mu.draining = true
	h.mu.Unlock()
	h.tasks.Stop(core.Errorf(core.CodeDraining, "input host is stopping"))
	return nil
}

// queueOf finds or makes the router of a queue, whose record of that reading is for a publisher, and takes the
// publisher in.
func (h *Host) queueOf(record metadata.QueueRecord, at metadata.Reading, p *publisher) *queue {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.mu.queues[queueKey{id: record.ID}]
	if q == nil {
		q = newQueue(h, record, at, "")
		q.mu.closed = h.mu.draining
		h.mu.queues[queueKey{id: record.ID}] = q
	}
	q.mu.Lock()
	q.mu.publishers[p] = struct{}{}
	if at != q.mu.at && !at.Before(q.mu.at) {
		q.mu.record, q.mu.at, q.mu.refuses = record, at, record.Spec.Status.PublishError(q.path)
	}
	q.mu.Unlock()
	return q
}

// forget drops a queue that nothing refers to.
func (h *Host) forget(q *queue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if key := (queueKey{q.id, q.horizon}); q.idleLocked(h.deps.now()) && h.mu.queues[key] == q {
		delete(h.mu.queues, key)
		if q.gate != nil {
			q.gate.Close()
		}
	}
}

func (h *Host) list() []*queue { return h.appendQueues(nil) }

func (h *Host) appendQueues(dst []*queue) []*queue {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range h.mu.queues {
		dst = append(dst, q)
	}
	return dst
}

// limits of the writers of an extent of that kind.
func (h *Host) limits(kind core.ExtentKind) writer.Limits {
	l := writer.Limits{PublishDeadline: h.cfg.PublishDeadline, RollBytes: h.cfg.RollBytes}
	if kind == core.KindTimer {
		l.MaxRecords = core.MaxTimerRecords
	}
	return l
}

// demand is how many open extents queues may want now.
func (h *Host) demand() demandLimits {
	least := h.cfg.MinOpenExtents
	if least == 0 {
		least = min(max(len(h.deps.Members.Hosts("storehost")), 1), 2)
	}
	return demandLimits{least: least, most: max(least, mostOpen), rate: float64(h.cfg.ExtentRate), calm: calmBefore}
}
