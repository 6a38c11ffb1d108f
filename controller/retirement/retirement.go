// Package retirement owns the removal of extents: those of deleted queues, and those whose retention is over.
package retirement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/controller/retirement/retention"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/clocks"
	"github.com/columbamq/columba/metadata"
)

// Owner is the controller, as far as retirement needs it.
type Owner interface {
	// Look has f look after an extent, unless somebody does, or too many are looked after: then it reports false.
	Look(id core.ExtentID, f func(ctx context.Context)) bool
	// Seal fixes the end of an extent.
	Seal(ctx context.Context, e core.Extent, reason string) error
	// Delete has the stores that are there delete their replicas, by the version of the row.
	Delete(ctx context.Context, row metadata.SealRecord) error
	// Left has those leave an extent that read it by its home.
	Left(e core.Extent, home core.Home)
	// Forget is for an extent of which nothing is left.
	Forget(e core.Extent, home core.Home)
}

// Metrics of a Runner.
type Metrics struct {
	Expired         prometheus.Counter // extents
	ExpiredMessages prometheus.Counter
	Stopped         prometheus.Gauge // 1 while clocks are not trusted
	Overdue         prometheus.Gauge // extents whose time is over and that the last round left
}

// Config of a Runner.
type Config struct {
	Meta    metadata.Store
	Extents *catalog.Extents // told of rows that are read or changed
	// Responsible reports whether this controller is for a queue; others look after the others.
	Responsible func(queue core.ID) bool
	Members     membership.Monitor
	Dial        func(ctx context.Context, network, addr string) (net.Conn, error) // of the hosts whose clocks are asked
	Now         func() time.Time
	Log         *slog.Logger
	Metrics     Metrics
	Every       time.Duration // how often extents are looked for that their queues keep no longer
}

// Runner retires what is of a deleted queue, and what queues keep no longer, in steps. Each is in the seal row: any
// controller goes on from there.
//
//	sealed ──due──▶ retiring ──still due, all read again──▶ retired ──drained──▶ removed by its stores, its rows gone
//	   ▲────────────────┘ a group needs it, or the clock is not trusted
//
// A group is made, and so must be rewound, the other way round: its row first, then the extents are read. So either the
// second look meets the group, or the group meets the mark, and gets nothing of the extent. One goroutine uses Run,
// another one may use Deleted, and any number Changed.
type Runner struct {
	cfg     Config
	owner   Owner
	clocks  *clocks.Clocks
	differ  bool   // as of the last look at them
	deleted string // the deleted group that was looked at last
	dying   string // the same of queues that are being deleted; of Deleted alone
	mu      struct {
		sync.Mutex
		seen     map[core.ExtentID]sighting
		deleted  map[core.QueueID]struct{} // queues that are known to be deleted, while they have extents
		names    map[core.QueueID]progress.Names
		settings map[core.QueueID]settings   // of queues that are not deleted
		reading  map[core.QueueID]struct{}   // whose rows are being read, and of which nobody has told since
		overdue  map[core.QueueID]int        // extents that the last look at the queue left; no queue without
		places   map[core.ID]*progress.Place // of removals of extents and groups that did not come to their end
	}
}

// New runner; it does no I/O.
func New(cfg Config, owner Owner) *Runner {
	r := &Runner{cfg: cfg, owner: owner, clocks: clocks.New(cfg.Dial, cfg.Now)}
	r.mu.seen, r.mu.names = make(map[core.ExtentID]sighting), make(map[core.QueueID]progress.Names)
	r.mu.overdue, r.mu.places = make(map[core.QueueID]int), make(map[core.ID]*progress.Place)
	r.mu.deleted, r.mu.settings = make(map[core.QueueID]struct{}), make(map[core.QueueID]settings)
	r.mu.reading = make(map[core.QueueID]struct{})
	return r
}

// stepTimeout bounds one step; the next round goes on from the row.
const stepTimeout = 20 * time.Second

// errMoved: another controller went on.
var errMoved = errors.New("another controller went on with it meanwhile")

const (
	// markedFor is at least between the mark and the second look.
	markedFor = 10 * time.Second
	// drainedFor is at least between an extent's retirement and its removal: output hosts are told to leave it, and save
	// for up to a minute what is settled late.
	drainedFor = 90 * time.Second
)

// sighting is since when this controller knows an extent to be retiring, or retired. Other controllers may undo a mark
// and make another one: the version tells.
type sighting struct {
	state   core.ExtentState
	version uint64
	at      time.Time
}

// Run looks at all queues, and at deleted groups, now and then until ctx ends. Neither holds up the other.
func (r *Runner) Run(ctx context.Context) {
	defer r.clocks.Close()
	var groups sync.WaitGroup
	defer groups.Wait()
	groups.Go(func() { lifecycle.Every(ctx, r.cfg.Every, r.deletedGroups) })
	lifecycle.Every(ctx, r.cfg.Every, r.round)
}

// unread logs that something could not be read, or changed, and waits for the next round. While the metadata do not
// answer, that goes for all rounds, and the controller says so itself, once: these lines are for debugging then.
func (r *Runner) unread(ctx context.Context, err error, what string, attrs ...any) {
	level := slog.LevelInfo
	switch core.CodeOf(err) {
	case core.CodeUnavailable, core.CodeNoMajority, core.CodeDeadline:
		level = slog.LevelDebug
	}
	r.cfg.Log.Log(ctx, level, what, append(attrs, "err", err)...)
}

// since is for how long this controller has known an extent in its state.
func (r *Runner) since(e catalog.Extent, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.mu.seen[e.ID]
	if s.state != e.State || s.version != e.Version {
		s = sighting{e.State, e.Version, now}
		r.mu.seen[e.ID] = s
	}
	return now.Sub(s.at)
}

// mark begins the retirement of an extent, unless something is the matter with it.
func (r *Runner) mark(ctx context.Context, e catalog.Extent) error {
	now := r.cfg.Now()
	row, err := metadata.Change(ctx, r.cfg.Meta, metadata.Seals, metadata.SealKey(e.ID), func(row *metadata.SealRecord) error {
		disputed := row.Floor > row.L && !row.Forced                          // its writer has not given up what lies above its end
		if row.State != core.ExtentSealed || disputed || row.Home != e.Home { // who reads it now was not asked
			return metadata.ErrNoChange
		}
		row.State, row.Version, row.Attempt, row.Changed = core.ExtentRetiring, row.Version+1, core.NewID(now), now
		return nil
	})
	if err != nil {
		return core.Errorf(core.CodeOf(err), "mark extent %s: %w", e.ID, err)
	}
	r.cfg.Extents.Took(row)
	return nil
}

// decide retires a marked extent, or undoes the mark. The loss of unconsumed messages is recorded first; if it cannot
// be recorded, the extent is not retired.
func (r *Runner) decide(ctx context.Context, m metadata.SealRecord, verdict retention.Verdict, p progress.Progress, trusted bool) error {
	id, to := m.Extent.ID, core.ExtentRetired
	if verdict == retention.Keep || !trusted {
		to = core.ExtentSealed
	}
	var lost uint64
	if to == core.ExtentRetired && verdict == retention.Expired {
		var err error
		if lost, err = p.Unconsumed(ctx, r.cfg.Meta, m); err == nil {
			err = r.recordExpiry(ctx, m, lost)
		}
		if err != nil {
			return core.Errorf(core.CodeOf(err), "retire extent %s: %w", id, err)
		}
	}
	row, err := metadata.Change(ctx, r.cfg.Meta, metadata.Seals, metadata.SealKey(id), func(row *metadata.SealRecord) error {
		if row.State != core.ExtentRetiring || row.Attempt != m.Attempt {
			return errMoved
		}
		row.State, row.Version, row.Changed = to, row.Version+1, r.cfg.Now()
		return nil
	})
	r.cfg.Extents.Took(row)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "retire extent %s: %w", id, err)
	}
	if to == core.ExtentSealed {
		r.cfg.Log.Info("an extent stays: a group needs it, or the clocks differ", "extent", id)
		return nil
	}
	if verdict == retention.Expired {
		r.cfg.Metrics.Expired.Inc()
		r.cfg.Metrics.ExpiredMessages.Add(float64(lost))
	}
	r.cfg.Log.Info("an extent is retired", "extent", id, "queue", m.Extent.Queue, "unconsumed", lost, "bytes", m.Bytes)
	r.owner.Left(m.Extent, m.Home)
	return nil
}

// recordExpiry writes into the audit what retention takes from groups. Doing it again writes the same row.
func (r *Runner) recordExpiry(ctx context.Context, row metadata.SealRecord, lost uint64) error {
	at := row.Attempt.Time()
	expired := metadata.AuditRecord{
		Who: "controller " + string(r.cfg.Members.Self().ID), What: fmt.Sprintf("retention: delete %d messages unconsumed", lost), Object: row.Extent.ID.String(), When: at, Result: "ok",
	}
	return metadata.Write(ctx, r.cfg.Meta, metadata.Audit, metadata.AuditKey(at, row.Attempt), expired, r.cfg.Now(), metadata.AuditTTL, metadata.Quorum)
}

// trustClock compares this host's clock with all others', and reports whether anything may be retired by it.
func (r *Runner) trustClock(ctx context.Context) bool {
	readings, silent := r.clocks.Read(ctx, r.cfg.Members)
	var gaps []time.Duration
	for _, x := range readings {
		gaps = append(gaps, x.Ahead)
	}
	ok := retention.Trust(gaps, silent)
	if !ok && !r.differ && ctx.Err() == nil {
		r.cfg.Log.Error("retention stops: the clocks of hosts differ, or too few hosts answer; look after the time service", "gaps", gaps, "silent", silent)
	} else if ok && r.differ {
		r.cfg.Log.Info("retention goes on: the clocks agree")
	}
	r.differ = !ok
	stopped := 0.0
	if !ok {
		stopped = 1
	}
	r.cfg.Metrics.Stopped.Set(stopped)
	return ok
}
