// Package storehost owns the replicas of extents on one disk: it accepts appends, serves reads, fences, seals and
// copies. It knows neither queues nor groups.
package storehost

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/serving"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/wire/ws"
)

// Config of a store host.
type Config struct {
	Dir       string    // of the extents; made if its parent is there
	Links     ws.Limits // connections of other hosts, and their append and read streams; more are refused
	ScrubRate int       // bytes of sealed extents verified in a second, in the background; 0: none
}

// DefaultConfig is right for most clusters; Dir must be set.
func DefaultConfig() Config {
	return Config{Links: ws.Limits{Connections: 4096, Streams: 1_000_000, PerConnection: 100_000}, ScrubRate: 4 << 20}
}

// Validate reports what is wrong with the settings.
func (c Config) Validate() error {
	switch {
	case c.Dir == "":
		return core.Errorf(core.CodeBadArgument, "store host: the directory of the extents is not set")
	case c.Links.Connections <= 0 || c.Links.Streams <= 0 || c.Links.PerConnection <= 0:
		return core.Errorf(core.CodeBadArgument, "store host: the limits of connections and streams must be above zero")
	case c.ScrubRate < 0:
		return core.Errorf(core.CodeBadArgument, "store host: the scrub rate must not be below zero")
	}
	return nil
}

// Deps are what the process gives to the role.
type Deps struct {
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Self    core.HostID // the store's id; a directory belongs to one store for ever
	Run     core.RunID  // of this process
	Tables  int         // of the disk that are open at once, at most; 0: extentlog decides
	// Open opens the extents; nil: extentlog.Open. Tests put disks in memory behind it.
	Open func(dir string, o extentlog.Options) (extentlog.Log, error)
	Now  func() time.Time // by which timers are due; nil: the system's clock
	// Confirm is asked before records are dropped.
	Confirm Confirmer
}

func (d Deps) open(dir string, o extentlog.Options) (extentlog.Log, error) {
	if d.Open != nil {
		return d.Open(dir, o)
	}
	return extentlog.Open(dir, o)
}

// Host is the role. Start it once.
//
// Threads: a connection's reader takes frames and hands appends to the log; the log's committer calls back with acks
// and wakes; one pusher per connection sends what its read streams may have. Opening an extent runs on a goroutine of
// its own.
type Host struct {
	cfg        Config
	deps       Deps
	log        *slog.Logger
	remote     *slog.Logger // for lines that a peer causes
	peers      *ws.Admission
	readers    readers
	metrics    *metrics
	ctx        context.Context // ends with Stop; all goroutines live under it
	cancel     context.CancelCauseFunc
	copies     *semaphore.Weighted // bytes of copies that wait for the disk
	verifying  *semaphore.Weighted // 1: a replica that is verified by an operator's word
	confirming confirming
	wg         sync.WaitGroup // Add only under mu and while not stopped
	mu         struct {
		sync.Mutex
		log      extentlog.Log   // nil before Start, and while it is opened anew
		failed   error           // why it takes nothing; nil while it works
		links    context.Context // of the connections that use it
		endLinks context.CancelCauseFunc
		draining bool
		stopped  bool
	}
}

// New makes the role; it does no I/O.
func New(cfg Config, deps Deps) (*Host, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	h := &Host{copies: semaphore.NewWeighted(maxCopies), verifying: semaphore.NewWeighted(1), confirming: newConfirming(deps.Confirm), cfg: cfg, deps: deps, log: deps.Log.With(telemetry.KeyRole, "storehost")}
	h.remote = telemetry.LimitBySource(h.log)
	h.peers = ws.NewAdmission(cfg.Links, func(f func(context.Context)) bool { return h.run(func() { f(h.ctx) }) })
	h.metrics = newMetrics(deps.Metrics, h)
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	return h, nil
}

// Name of the part.
func (h *Host) Name() string { return "storehost" }

// maxRequest bounds a call's body: one batch with the largest record fits.
const maxRequest = 32 << 20

// Routes registers the data websocket and the store's service.
func (h *Host) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/store", h.serveLink)
	mux.Handle(serving.Handler(columbav1connect.NewStoreServiceHandler, columbav1connect.StoreServiceHandler(&service{h}), serving.Options{Request: maxRequest}))
}

// Start opens the extents.
func (h *Host) Start(context.Context) error {
	log, err := h.deps.open(h.cfg.Dir, extentlog.Options{Store: h.deps.Self, Run: h.deps.Run, Log: h.log, ScrubRate: h.cfg.ScrubRate, Tables: h.deps.Tables})
	if err != nil {
		return err
	}
	h.attach(log)
	return nil
}

// Run opens a log that has failed anew, and waits for the end, from which on no extent is opened. An error says that
// the process must end.
func (h *Host) Run(ctx context.Context) error {
	defer h.drain()
	r := reopener{h: h}
	for ctx.Err() == nil {
		log := h.current()
		select {
		case <-ctx.Done():
		case <-log.Failed():
			if err := r.reopen(ctx, log); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *Host) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.draining = true
}

// stopPatience is how long Stop waits for goroutines before it closes the log. One that is in a read which the disk
// does not answer is left behind: Close gives the log up then.
const stopPatience = 10 * time.Second

// Stop ends all connections, joins all goroutines and closes the extents. On a disk that hangs it takes a minute at
// most and answers extentlog.ErrHangs or ErrLeft: what was not acknowledged is on the disk or not, and the next start
// finds out.
func (h *Host) Stop(context.Context) error {
	h.cancel(core.Errorf(core.CodeDraining, "store is stopping"))
	h.mu.Lock()
	h.mu.stopped, h.mu.draining = true, true
	log := h.mu.log
	h.mu.Unlock()
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		h.wg.Wait()
	}()
	timer := time.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case <-joined:
	case <-timer.C:
		h.log.Warn("work of the store has not ended, and its log is closed beside it: look at the disk, which may hang", "after", stopPatience)
	}
	if log == nil {
		return nil
	}
	return log.Close()
}

func (h *Host) now() time.Time {
	if h.deps.Now != nil {
		return h.deps.Now()
	}
	return time.Now()
}

// extents is the log; CodeUnavailable before Start.
func (h *Host) extents() (extentlog.Log, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.log, h.unavailableLocked()
}

func (h *Host) unavailableLocked() error {
	switch {
	case h.mu.log != nil:
		return nil
	case h.mu.failed != nil:
		return h.mu.failed
	}
	return core.Errorf(core.CodeUnavailable, "store is starting; try again")
}

// linked is the log and the context of the connections that use it.
func (h *Host) linked() (extentlog.Log, context.Context, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.log, h.mu.links, h.unavailableLocked()
}

// admits is why no extent is opened here any more; nil otherwise.
func (h *Host) admits() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.draining {
		return core.Errorf(core.CodeDraining, "store is stopping; use another")
	}
	return nil
}

// run starts f on a goroutine that Stop joins; false when stopping.
func (h *Host) run(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.stopped {
		h.wg.Go(f)
	}
	return !h.mu.stopped
}

// enter counts a caller's work that Stop must wait for; false when stopping.
func (h *Host) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.stopped {
		return false
	}
	h.wg.Add(1)
	return true
}
