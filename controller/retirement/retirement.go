// Package retirement owns the removal of extents: those of deleted queues, and those whose retention is over.
package retirement

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"slices"
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
	// Look has f look after an extent, unless somebody does, or too many are looked after.
	Look(id core.ExtentID, f func(ctx context.Context))
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

// Runner retires what is of a deleted queue, and what queues keep no longer, in steps. Each is in the seal row: any controller goes on from there.
//
//	sealed ──due──▶ retiring ──still due, all read again──▶ retired ──drained──▶ removed by its stores, its rows gone
//	   ▲────────────────┘ a group needs it, or the clock is not trusted
//
// A group is made, and so must be rewound, the other way round: its row first, then the extents are read. So either the second look meets the
// group, or the group meets the mark, and gets nothing of the extent. One goroutine uses Run, another one may use Deleted.
type Runner struct {
	cfg     Config
	owner   Owner
	seen    map[core.ExtentID]sighting
	names   map[core.QueueID]progress.Names
	clocks  *clocks.Clocks
	differ  bool // as of the last look at them
	marks   int  // left in this round
	removes int
	trusted func() bool // asked once a round, when it matters
	deleted string      // the deleted group that was looked at last
	dying   string      // the same of queues that are being deleted; of Deleted alone
}

// New runner; it does no I/O.
func New(cfg Config, owner Owner) *Runner {
	return &Runner{
		cfg: cfg, owner: owner, seen: make(map[core.ExtentID]sighting), names: make(map[core.QueueID]progress.Names), clocks: clocks.New(cfg.Dial, cfg.Now),
	}
}

// stepTimeout bounds one step; the next round goes on from the row.
const stepTimeout = 20 * time.Second

// errMoved: another controller went on.
var errMoved = errors.New("another controller went on with it meanwhile")

const (
	// AtOnce bounds the extents that one round marks, and those it has removed: the metadata and the stores have other work.
	AtOnce = 64
	// markedFor is at least between the mark and the second look.
	markedFor = 10 * time.Second
	// drainedFor is at least between an extent's retirement and its removal: output hosts are told to leave it, and save for up to a minute
	// what is settled late.
	drainedFor = 90 * time.Second
)

// sighting is since when this controller knows an extent to be retiring, or retired. Other controllers may undo a mark and make another one: the version tells.
type sighting struct {
	state   core.ExtentState
	version uint64
	at      time.Time
}

// Run looks at all queues, and at deleted groups, now and then until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	defer r.clocks.Close()
	lifecycle.Every(ctx, r.cfg.Every, func(ctx context.Context) {
		r.round(ctx)
		r.deletedGroups(ctx)
	})
}

// round takes every queue's extents a step on. A queue or extent that cannot be read stays as it is.
func (r *Runner) round(ctx context.Context) {
	r.marks, r.removes = AtOnce, AtOnce
	asked, trusted := false, false
	r.trusted = func() bool {
		if !asked {
			asked, trusted = true, r.trustClock(ctx)
		}
		return trusted
	}
	for id := range r.seen {
		if _, live := r.cfg.Extents.Get(id); !live {
			delete(r.seen, id)
		}
	}
	for queue := range r.names {
		if !r.cfg.Extents.Has(queue) {
			delete(r.names, queue)
		}
	}
	for q := range r.queueRows(ctx) {
		if err := r.queue(ctx, q); err != nil && ctx.Err() == nil {
			r.unread(ctx, err, "the extents of a queue stay for now", "queue", q.ID)
		}
	}
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

// queuesAtOnce bounds the rows of queues that are read by one call.
const queuesAtOnce = 100

// queueRows yields the rows of the queues with extents, except those that cannot be read. They may be old: the caller
// reads a row again at Serial before it acts on it. Serial reads of all queues would fill the time between two rounds.
func (r *Runner) queueRows(ctx context.Context) iter.Seq[metadata.QueueRecord] {
	return func(yield func(metadata.QueueRecord) bool) {
		others := func(id core.QueueID) bool { return !r.cfg.Responsible(id.ID) }
		for queues := range slices.Chunk(slices.DeleteFunc(r.cfg.Extents.Queues(), others), queuesAtOnce) {
			rows, err := r.readQueues(ctx, queues)
			if err != nil && ctx.Err() == nil {
				r.unread(ctx, err, "the extents of some queues stay for now: their rows cannot be read", "queues", len(queues))
			}
			for _, row := range rows {
				q, err := metadata.Decode[metadata.QueueRecord](metadata.Queues, row)
				if err != nil {
					r.cfg.Log.Info("the extents of a queue stay for now", "queue", row.Key.Row, "err", err)
					continue
				}
				if ctx.Err() != nil || !yield(q) {
					return
				}
			}
		}
	}
}

func (r *Runner) readQueues(ctx context.Context, queues []core.QueueID) ([]metadata.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	keys := make([]metadata.Key, len(queues))
	for i, id := range queues {
		keys[i] = metadata.QueueKey(id)
	}
	return metadata.GetRows(ctx, r.cfg.Meta, metadata.Queues, keys, metadata.Quorum)
}

func policyOf(q metadata.QueueRecord) retention.Policy {
	return retention.Policy{Consumed: q.Spec.ConsumedRetention, Unconsumed: q.Spec.UnconsumedRetention}
}

// queue takes the extents of one queue a step on. Its row says which of them may be due; it is read again before they go.
func (r *Runner) queue(ctx context.Context, q metadata.QueueRecord) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if q.Spec.Status == core.StatusDeleted { // see Deleted
		return nil
	}
	queue, now := q.ID, r.cfg.Now()
	due, marked := r.candidates(queue, policyOf(q), now)
	if len(due)+len(marked) == 0 {
		return nil
	}
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, r.cfg.Meta, metadata.Queues, metadata.QueueKey(queue), metadata.Serial)
	if err != nil || q.Spec.Status == core.StatusDeleted {
		return err
	}
	policy := policyOf(q)
	marks, err := r.readMarks(ctx, marked) // before the groups: what is read of them must be younger than the mark
	if err != nil {
		return err
	}
	groups, names, err := progress.Read(ctx, r.cfg.Meta, queue, r.names[queue])
	if err != nil {
		return err
	}
	r.names[queue] = names
	for _, m := range marks {
		readers, err := r.readers(ctx, m.Home, groups)
		if err != nil {
			return err
		}
		if err := r.decide(ctx, m, policy.JudgeSealed(retention.Sealed{Home: m.Home, Ended: m.KeptFrom()}, readers.Consumed(m.Extent.ID), now), readers); err != nil {
			return err
		}
	}
	for _, e := range due {
		if r.marks == 0 {
			return nil
		}
		readers, err := r.readers(ctx, e.Home, groups)
		if err != nil {
			return err
		}
		if policy.JudgeSealed(retention.Sealed{Home: e.Home, Ended: e.Kept}, readers.Consumed(e.ID), now) == retention.Keep || !r.trusted() {
			continue
		}
		r.marks--
		if err := r.mark(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// candidates are the extents of a queue that its policy may let go, and those that are marked. It has those removed that
// are drained.
func (r *Runner) candidates(queue core.QueueID, policy retention.Policy, now time.Time) (due, marked []catalog.Extent) {
	for _, e := range r.cfg.Extents.Of(queue) {
		switch {
		case e.State == core.ExtentSealed && policy.MayGoSealed(retention.Sealed{Home: e.Home, Ended: e.Kept}, now):
			due = append(due, e)
		case e.State == core.ExtentRetiring && r.since(e, now) >= markedFor:
			marked = append(marked, e)
		case e.State == core.ExtentRetired && r.since(e, now) >= drainedFor && r.removes > 0:
			r.removes--
			r.owner.Look(e.ID, func(ctx context.Context) { r.removeDrained(ctx, e) })
		}
	}
	return due, marked
}

// since is for how long this controller has known an extent in its state.
func (r *Runner) since(e catalog.Extent, now time.Time) time.Duration {
	s := r.seen[e.ID]
	if s.state != e.State || s.version != e.Version {
		s = sighting{e.State, e.Version, now}
		r.seen[e.ID] = s
	}
	return now.Sub(s.at)
}

// readMarks reads the rows of extents that are marked, and leaves out those that are not any more.
func (r *Runner) readMarks(ctx context.Context, marked []catalog.Extent) (out []metadata.SealRecord, err error) {
	for _, e := range marked {
		row, _, err := metadata.Read[metadata.SealRecord](ctx, r.cfg.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
		if err != nil {
			return nil, err
		}
		r.cfg.Extents.Took(row)
		if row.State == core.ExtentRetiring {
			out = append(out, row)
		}
	}
	return out, nil
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
func (r *Runner) decide(ctx context.Context, m metadata.SealRecord, verdict retention.Verdict, p progress.Progress) error {
	id, to := m.Extent.ID, core.ExtentRetired
	if verdict == retention.Keep || !r.trusted() {
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

// readers is how far those are that read an extent: own are the groups of its queue.
func (r *Runner) readers(ctx context.Context, home core.Home, own progress.Progress) (progress.Progress, error) {
	if home.Kind != core.HomeMerged {
		return own, nil
	}
	groups, names, err := progress.Read(ctx, r.cfg.Meta, home.Queue, r.names[home.Queue])
	if err != nil {
		return nil, err
	}
	r.names[home.Queue] = names
	return groups.Only(home.Group), nil
}
