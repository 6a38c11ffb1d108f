// Package outputhost owns the consume path: it reads the shares it was given, hands messages to competing consumers,
// tracks locks, acks, redelivery and dead letters, and checkpoints how far each group is.
//
// Groups, shares and consumers of a group are guarded by one mutex, the group's. The files, in the order to read them:
//
//	flow        reading.go, reader.go, receive.go, watch.go: read streams of extents; pump.go: what follows from an event
//	delivery    group.go, connection.go, consume.go, consumer.go, turns.go, chain.go, pull.go; settlement.go; transfers.go
//	assignment  assign.go, lists.go, relist.go, share.go, handover.go, leased.go: lists of shares
//	checkpoints checkpoint.go, save.go, saveline.go, saveparts.go, savefailures.go, quorum.go; refresh.go: changes of settings
//	answers     rpc.go, inspected.go; openings.go: breakers that are open on other hosts; metrics.go
package outputhost

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/deliverytoken"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/internal/serving"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost/budget"
	"github.com/columbamq/columba/outputhost/cancels"
	"github.com/columbamq/columba/outputhost/deadlines"
	"github.com/columbamq/columba/outputhost/inspect"
	"github.com/columbamq/columba/outputhost/lease"
	"github.com/columbamq/columba/outputhost/sources"
	"github.com/columbamq/columba/outputhost/transfer"
	"github.com/columbamq/columba/wire/ws"
)

// Config of an output host.
type Config struct {
	CheckpointEvery time.Duration // how often what changed is checkpointed; a crash redelivers about this much
	CheckpointAcks  int           // so many settled messages have a group checkpointed sooner …
	CheckpointBusy  time.Duration // … but this long after its last
	CheckpointRows  int           // checkpoints a second of all output hosts together; beyond that shares are saved more rarely …
	CheckpointMost  time.Duration // … but not more rarely than this
	RefreshEvery    time.Duration // how often settings of active groups are read again
	RelistEvery     time.Duration // how often the lists of shares are compared with those of the controllers; more rarely when they are many
	CallTimeout     time.Duration // of one call to a store, a controller or the metadata
	ReadAhead       int           // bytes a share has asked a store for and not been sent, at most
	ReadMemory      int           // the same for all shares of the host together
	HoldMemory      int           // bytes of messages read and not settled, and what is kept for them, of all shares together
	UnreadMemory    int           // bytes of deliveries that wait to be written, to all consumers together
	MaxCredit       int           // bytes a consumer may hold, whatever it grants
	Links           ws.Limits     // connections of consumers and their streams; more are refused
	GroupConsumers  int           // consumers of one group on this host; more are refused
	Series          int           // groups with metrics of their own; the rest is summed
	SearchBytes     int           // how much one call looks through for a message of which it was told the id
}

// DefaultConfig is right for most clusters.
func DefaultConfig() Config {
	return Config{
		CheckpointEvery: time.Second,
		CheckpointAcks:  100,
		CheckpointBusy:  100 * time.Millisecond,
		CheckpointRows:  1000,
		CheckpointMost:  10 * time.Second,
		RefreshEvery:    2 * time.Second,
		RelistEvery:     5 * time.Second,
		CallTimeout:     3 * time.Second,
		ReadAhead:       8 << 20,
		ReadMemory:      256 << 20,
		HoldMemory:      512 << 20,
		UnreadMemory:    256 << 20,
		MaxCredit:       32 << 20,
		Links:           ws.Limits{Connections: 16_384, Streams: 100_000, PerConnection: 10_000},
		GroupConsumers:  10_000,
		Series:          telemetry.MostSeries,
		SearchBytes:     32 << 20,
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
	Random  func() float64   // in [0, 1), for back-offs; nil: the system's source
}

// Host is the role. Start it once.
type Host struct {
	cfg       Config
	log       *slog.Logger
	remote    *slog.Logger // for lines that clients cause
	clients   *ws.Admission
	deps      Deps
	metrics   *metrics
	tasks     *lifecycle.Tasks   // sessions, readers, and what they start
	keys      deliverytoken.Keys // set by Start
	deadlines *deadlines.Deadlines[*group]
	saver     *saver
	mover     *transfer.Mover
	sources   *sources.Stores
	memory    *budget.Budget
	unread    *budget.Budget // what waits to be written to connections of consumers
	notes     *budget.Budget // the part of the memory for texts and metadata of nacks
	leases    *lease.Leases
	openings  *openings
	cancels   *cancels.Desk
	inspector *inspect.Inspector
	refreshes core.Recurring // failures of refresh; of its loop alone
	mu        struct {
		sync.Mutex
		groups     map[core.GroupID]*group
		byQueue    map[core.QueueID][]*group // the same
		sessions   map[*session]struct{}
		lists      map[core.QueueID]*queueList   // of shares
		minority   map[core.QueueID][]*queueList // lists of minorities, beside those
		minorities uint32                        // lists of minorities that came so far
		leases     *leaseSet                     // of the queue that was looked at last
		floor      core.ListVersion              // of the newest list that was forgotten
		stopped    bool
	}
	draining    atomic.Bool   // nothing is handed out any more
	accepting   chan struct{} // capacity 1: one list says at a time what is dropped
	relisting   chan struct{} // capacity 1: the lists are to be compared with those of the controllers
	routing     chan struct{} // capacity 1: hosts came or went, and consumers are to be told
	transferred chan struct{} // capacity 1: a host that drains was told outcomes of appends
	nextSession atomic.Uint32 // of consumers
	nextPull    atomic.Uint32
	readers     atomic.Int64 // open read streams
	epoch       time.Time    // see elapsed
}

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
	h.saver.save(last, true)
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
	h.saver.save(last, true)
	return nil
}

// transfersWait bounds how long a host that ends waits for the outcomes of appends.
const transfersWait = 2 * time.Second

// awaitTransfers waits until no append to a built-in queue is under way. A last checkpoint before that would have the
// next owner take the message for perhaps appended, and wait for dispatch.TransferDoubt. No append begins while the
// host drains.
func (h *Host) awaitTransfers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, transfersWait)
	defer cancel()
	for h.appends() {
		select {
		case <-h.transferred:
		case <-ctx.Done():
			return
		}
	}
}

// appends reports whether the outcome of an append is missing.
func (h *Host) appends() bool {
	for _, g := range h.groupList() {
		g.mu.Lock()
		appends := g.mu.rules.Appends()
		g.mu.Unlock()
		if appends {
			return true
		}
	}
	return false
}

// elapsed is an instant of this run in 8 bytes rather than 24, for what every idle group and share has, and by the
// monotonic clock. Zero is an hour before the start: long ago.
func (h *Host) elapsed(now time.Time) time.Duration { return now.Sub(h.epoch) }

func (h *Host) groupList() []*group {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.AppendSeq(make([]*group, 0, len(h.mu.groups)), maps.Values(h.mu.groups))
}

// loaded is the loaded group of an id, or nil.
func (h *Host) loaded(id core.GroupID) *group {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.groups[id]
}

func (h *Host) sessionList() []*session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.AppendSeq(make([]*session, 0, len(h.mu.sessions)), maps.Keys(h.mu.sessions))
}

// onEach calls f whenever c was poked, until ctx ends.
func onEach(ctx context.Context, c <-chan struct{}, f func(ctx context.Context)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c:
			f(ctx)
		}
	}
}

// poke wakes the goroutine that waits for c, of capacity 1, or lets it go round once more.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
