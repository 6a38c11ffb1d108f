// Package controller owns the placement of extents and shares: it creates extents, seals them, keeps their copies, and
// assigns every (group, extent) to an output host. It neither reads nor stores messages.
package controller

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/controller/backlog"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/operations"
	"github.com/columbamq/columba/controller/quota"
	"github.com/columbamq/columba/controller/repair"
	"github.com/columbamq/columba/controller/replicas"
	"github.com/columbamq/columba/controller/retirement"
	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/internal/retell"
	"github.com/columbamq/columba/internal/serving"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// Config of a controller.
type Config struct {
	ReconcileEvery time.Duration // how often the wanted state is compared with what there is
	CallTimeout    time.Duration // of one call to a store or an output host
	SealsAtOnce    int           // seals that run side by side

	DescribeEvery   time.Duration // how often stores are asked how they fare
	DescribeTimeout time.Duration // of one such question
	// MinOpenExtents is how many extents a queue has open while it is published to; 0: two in a cluster, one on a single
	// machine.
	MinOpenExtents int

	Blink           time.Duration // a store that is away for less counts as there
	GoneAfter       time.Duration // when the copies of a store that is away are made anew
	RepairsAtOnce   int           // copies that are made side by side
	RepairPerSecond int           // bytes, of all copies that are not urgent
	InventoryEvery  time.Duration // how often stores are asked what they have
	RetainEvery     time.Duration // how often extents are looked for that their queues keep no longer
	CountEvery      time.Duration // how often backlogs are computed
	Alone           bool          // the metadata are this process's: there is no other controller
	CalmAfter       time.Duration // for how long the controllers have to be the same before one reads only what the others name
	ListBytes       int           // of the list of one queue's shares for an output host, at most
	PageBytes       int           // of the lists in one call, at most, unless the first one is longer
}

// DefaultConfig is right for most clusters.
func DefaultConfig() Config {
	return Config{
		ReconcileEvery: 2 * time.Second, CallTimeout: 3 * time.Second, SealsAtOnce: 64,
		DescribeEvery: 2 * time.Second, DescribeTimeout: time.Second,
		Blink: 3 * time.Second, GoneAfter: 5 * time.Minute, RepairsAtOnce: 4, RepairPerSecond: 64 << 20,
		CalmAfter: 10 * time.Minute, ListBytes: maxListBytes, PageBytes: pageBytes,
		InventoryEvery: 30 * time.Second, RetainEvery: 30 * time.Second, CountEvery: 5 * time.Second,
	}
}

func (c Config) validate() error {
	for _, d := range []time.Duration{c.ReconcileEvery, c.CallTimeout, c.DescribeEvery, c.DescribeTimeout, c.Blink, c.GoneAfter, c.InventoryEvery, c.RetainEvery, c.CountEvery, c.CalmAfter} {
		if d <= 0 {
			return core.Errorf(core.CodeBadArgument, "controller: every time must be above zero")
		}
	}
	if c.SealsAtOnce <= 0 || c.RepairsAtOnce <= 0 || c.RepairPerSecond <= 0 || c.ListBytes <= 0 || c.PageBytes <= 0 || c.MinOpenExtents < 0 {
		return core.Errorf(core.CodeBadArgument, "controller: every limit must be above zero")
	}
	return nil
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
	cfg         Config
	log         *slog.Logger
	deps        Deps
	metrics     *metrics
	tasks       *lifecycle.Tasks // seals, repairs, calls
	slots       chan struct{}    // seals under way
	retries     chan struct{}    // of those that failed before; they never hold up first tries
	moved       chan struct{}    // a host came or went
	describeNow chan struct{}    // descriptions of stores are wanted
	again       chan struct{}    // a round left extents out
	reload      chan struct{}    // another controller acted for some queues before
	changes     *changes         // for other controllers
	others      *others
	tellers     tellers // the rounds'
	gate        *gate   // of the work that nobody waits for
	loading     *loading
	majority    metadata.Majority
	watch       *majorityWatch
	minority    *minority
	extents     *catalog.Extents
	shares      *shares
	looksFail   core.Recurring // the rounds'
	givesFail   core.Recurring // the rounds'
	stores      *catalog.Stores
	hosts       *hosts
	untold      *untold
	retell      *retell.Teller[core.QueueID] // the responsible controllers, of groups that changed
	openings    *openings
	undecided   *undecided
	tries       *tries
	renewed     time.Time // when all unfinished extents were taken in; reconcile's
	strays      *strays
	unread      *unread
	skewed      *skewed
	repairs     *repair.Runner
	replicas    *replicas.Calls
	quotas      *quota.Keeper
	letters     *operations.Runner
	retirement  *retirement.Runner
	backlogs    *backlog.Collector
	creating    singleflight.Group // of extents, by ensureKey
	duties      duties
	actions     actions
	reloads     reloads
	mu          struct {
		sync.Mutex
		seals     map[core.ExtentID]*sealing
		creations map[ensureKey]*creation
		chains    map[core.QueueID]uint64    // the place up to which this controller knows the chain of a queue
		looking   map[core.ExtentID]struct{} // extents that a round looks after just now
		leftOut   bool                       // there were more of them
	}
}

// New makes the role; it does no I/O.
func New(cfg Config, deps Deps) (*Host, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	self, g, changes := deps.Members.Self(), &gate{}, newChanges(mostChanges)
	seen := heeded{deps.Meta, g}
	if deps.Meta = seen; !cfg.Alone {
		deps.Meta = noting{seen, changes}
	}
	h := &Host{
		cfg: cfg, log: deps.Log.With("role", "controller"), deps: deps, metrics: newMetrics(deps.Metrics), tasks: lifecycle.NewTasks(),
		slots: make(chan struct{}, cfg.SealsAtOnce), retries: make(chan struct{}, max(1, cfg.SealsAtOnce/4)), moved: make(chan struct{}, 1), describeNow: make(chan struct{}, 1), again: make(chan struct{}, 1), reload: make(chan struct{}, 1),
		changes: changes, others: newOthers(time.Now()),
		gate: g, loading: newLoading(deps.now()), extents: catalog.NewExtents(), shares: newShares(catalog.HostRun{Host: self.ID, Run: self.Run}, deps.now()), stores: catalog.NewStores(), hosts: newHosts(deps.now()), untold: newUntold(), openings: newOpenings(), undecided: newUndecided(), tries: newTries(), strays: newStrays(), skewed: &skewed{}, watch: newMajorityWatch(deps.now(), time.Now()),
	}
	h.unread = newUnread(h.log, h.metrics.unreadable)
	h.retell = retell.New(h.toldOfGroup, idleEvery, deps.now)
	h.duties, h.actions, h.minority = h.newDuties(), newActions(), newMinority()
	registerLease(deps.Metrics, h.duties.Holds)
	h.replicas = replicas.New(reached{h}, cfg.CallTimeout)
	h.repairs = repair.New(repair.Config{
		Meta: deps.Meta, Extents: h.extents, Stores: h.stores, Responsible: h.Responsible, Now: deps.now, Log: h.log, Tasks: h.tasks, Since: h.hosts.since, Blink: cfg.Blink, GoneAfter: cfg.GoneAfter,
		AtOnce: cfg.RepairsAtOnce, PerSecond: cfg.RepairPerSecond,
		Metrics: repair.Metrics{Below: h.metrics.below, Short: h.metrics.short, Lost: h.metrics.lost, Made: h.metrics.repaired, Quarantined: h.metrics.quarantined, Alarms: h.metrics.alarms},
	}, copies{h}, h.replicas)
	h.extents.GivenUp = func(e core.Extent) {
		h.repairs.GivenUp(e.ID)
		h.shares.touchHolders(e)
	}
	h.letters = operations.New(operations.Config{Meta: deps.Meta, Extents: h.extents, Owner: deadLetters{h}, Responsible: h.Responsible, Self: self.ID, Now: deps.now, Log: h.log, Every: cfg.ReconcileEvery})
	h.retirement = retirement.New(retirement.Config{
		Meta: deps.Meta, Extents: h.extents, Responsible: h.Responsible, Members: deps.Members, Dial: deps.Peers.Dial, Now: deps.now, Log: h.log, Every: cfg.RetainEvery,
		Metrics: retirement.Metrics{Expired: h.metrics.expired, ExpiredMessages: h.metrics.expiredMessages, Stopped: h.metrics.retentionStopped, Overdue: h.metrics.overdue},
	}, ended{h})
	h.quotas = quota.New(deps.Meta, deps.now, quota.Sources{
		Extents: h.extents,
		Settled: func(ctx context.Context, g metadata.GroupRecord, id core.ExtentID) (uint64, error) {
			return progress.Settled(ctx, deps.Meta, g, id)
		},
		Alone: cfg.Alone, Duties: h.duties, Inputs: h.inputs, Log: h.log, Wait: g.wait,
	})
	h.backlogs = backlog.New(backlog.Config{
		Meta: deps.Meta, Self: self.ID, Cluster: counted{h}, Extents: h.extents, Now: deps.now, Log: h.log, Every: cfg.CountEvery, Timeout: cfg.CallTimeout, Series: telemetry.MostSeries,
	})
	deps.Metrics.MustRegister(h.backlogs)
	h.mu.looking = make(map[core.ExtentID]struct{})
	h.mu.seals = make(map[core.ExtentID]*sealing)
	h.mu.creations = make(map[ensureKey]*creation)
	h.mu.chains = make(map[core.QueueID]uint64)
	return h, nil
}

// Name of the part.
func (h *Host) Name() string { return "controller" }

// maxRequest bounds a call's body, in bytes. The largest calls name what a selection of dead letters takes.
const maxRequest = 8 << 20

// Routes registers the controller's service.
func (h *Host) Routes(mux *http.ServeMux) {
	mux.Handle(serving.Handler(columbav1connect.NewControllerServiceHandler, columbav1connect.ControllerServiceHandler(&service{h}), serving.Options{Request: maxRequest}))
}

// Start reads which extents there are. A controller beside others does no I/O here, and reads them while it runs: see
// loading.
func (h *Host) Start(ctx context.Context) error {
	if h.cfg.Alone {
		if err := h.firstLoad(ctx, time.Time{}); err != nil {
			return core.Errorf(core.CodeOf(err), "controller: %w", err)
		}
	}
	h.hosts.adopt(h.deps.Members.Hosts(""), h.deps.now())
	h.stores.Adopt(h.deps.Members.Hosts("storehost"), h.deps.now())
	return nil
}

// Run reconciles until ctx ends. Events only make the next round come sooner.
func (h *Host) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, loop := range []func(context.Context){h.loadLoop, h.duties.Run, h.watchStores, h.watchHosts, h.watchClocks, h.minorityLoop, h.majorityLoop} {
		wg.Go(func() { loop(ctx) })
	}
	// These take an extent that they do not know for one that is not there.
	for _, loop := range []func(context.Context){h.assignLoop, h.repairs.Run, h.inventoryLoop, h.reloadLoop, h.retirement.Run, h.retireDeleted, h.retellLoop, h.letters.Run, h.backlogs.Run, h.quotas.Run} {
		wg.Go(func() {
			if h.loading.wait(ctx) {
				loop(ctx)
			}
		})
	}
	tick := time.NewTicker(h.cfg.ReconcileEvery)
	defer tick.Stop()
	h.pokeMoved()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			h.reconcile()
			h.forgetCreations(h.deps.now())
		case <-h.moved:
			h.reconcile()
		case <-h.again:
			h.reconcile()
		}
	}
}

// pokeMoved asks for a look at all extents and all shares: a host came or went.
func (h *Host) pokeMoved() {
	poke(h.moved)
	poke(h.shares.moved)
}

// Stop ends and joins all seals and calls.
func (h *Host) Stop(context.Context) error {
	h.tasks.Stop(core.Errorf(core.CodeDraining, "controller is stopping"))
	return nil
}
