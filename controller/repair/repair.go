// Package repair keeps as many good copies of sealed extents as wanted: it makes missing copies, takes out damaged ones
// and drops surplus ones.
package repair

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/repair/backlog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/metadata"
)

// Owner is the controller, as far as repair needs it.
type Owner interface {
	// Rank orders stores by how good a place they are for another copy of an extent, of which there are copies in these
	// zones.
	Rank(id core.ExtentID, zones []string, among []core.HostID) []core.HostID
	// Moved has readers hear that the holders are others.
	Moved(e core.Extent)
	// Gained is Moved for a copy more, on a store that knows the end.
	Gained(ctx context.Context, row metadata.SealRecord)
}

// Replicas are the calls to stores. Each names the disk that it is meant for.
type Replicas interface {
	// Fence has a replica say what it has; a store that removed it by an older version of the holders takes it back.
	Fence(ctx context.Context, e core.Extent, at core.Place, version uint64) (core.FenceAnswer, error)
	// Seal has a replica keep the end, and the version of the holders.
	Seal(ctx context.Context, row metadata.SealRecord, at core.Place, version uint64) error
	// Remove deletes a replica by the version of the row.
	Remove(ctx context.Context, row metadata.SealRecord, at core.Place) error
	Get(ctx context.Context, id core.ExtentID, at core.Place) (*pb.Replica, error)
	// Verify looks whether a holder has what the row says; CodeCorrupt, CodeNotFound: it does not.
	Verify(ctx context.Context, row metadata.SealRecord, at core.Place) error
	// Copy gives a replica what it lacks and another one has; unread says that an error is of reading it.
	Copy(ctx context.Context, id core.ExtentID, from, to core.Place, first, last core.Seq, pace func(ctx context.Context, bytes int) error) (unread bool, err error)
	// Checksum is a replica's rolling checksum at l; whole is false when none of its batches ends there.
	Checksum(ctx context.Context, id core.ExtentID, at core.Place, l core.Seq) (sum uint32, whole bool, err error)
}

// Metrics of a Runner: of extents, but for Made and Quarantined, which are of copies.
type Metrics struct {
	Below, Short, Lost prometheus.Gauge
	Made, Quarantined  prometheus.Counter
	Alarms             *prometheus.CounterVec // by cause
}

// Config of a Runner.
type Config struct {
	Meta    metadata.Store
	Extents *catalog.Extents // told of rows that are read or changed
	Stores  *catalog.Stores
	// Responsible reports whether this controller is for a queue; others look after the extents of the others, see mine.
	Responsible func(queue core.ID) bool
	Now         func() time.Time
	Log         *slog.Logger
	Metrics     Metrics
	Tasks       *lifecycle.Tasks
	Since       time.Time     // from when on a store that was never heard of counts as gone
	Blink       time.Duration // a store that is away for less counts as there
	GoneAfter   time.Duration // when the copies of a store that is away are made anew
	AtOnce      int           // copies that are made side by side
	PerSecond   int           // bytes, of all copies that are not urgent
}

// Runner repairs. Its row decides: any controller goes on where another one stopped. Safe for concurrent use.
type Runner struct {
	cfg      Config
	owner    Owner
	replicas Replicas
	backlog  *backlog.Backlog
	pace     *backlog.Pace // of copies that are not urgent
	below    int           // extents below the minimum, as of the last sweep
	swept    time.Time     // when that began …
	ends     uint64        // … after so many ends of extents
	calm     atomic.Bool   // it found nothing to do, and nothing that time alone changes; no doubt came up since
	mu       struct {
		sync.Mutex
		// doubted are the last holders of extents that turned out to be short or damaged. They stay in the row, since nobody
		// has more, and count as no copies.
		doubted map[core.ExtentID]core.Place
		failed  failures
	}
}

// failures are the tries that have failed since the last sweep.
type failures struct {
	tries int
	some  []core.ExtentID // the first ones
	err   error           // of the first one
}

// New runner; it does no I/O.
func New(cfg Config, owner Owner, replicas Replicas) *Runner {
	r := &Runner{cfg: cfg, owner: owner, replicas: replicas, backlog: backlog.New(), pace: backlog.NewPace(cfg.PerSecond)}
	r.mu.doubted = make(map[core.ExtentID]core.Place)
	return r
}

// Want asks for a look at one extent soon.
func (r *Runner) Want(id core.ExtentID) { r.backlog.Want(id) }

// GivenUp takes back that some of an extent is lost: nobody waits for that any more.
func (r *Runner) GivenUp(id core.ExtentID) {
	r.trust(id)
	r.backlog.Found(id)
}

// distrust records that the last holder of an extent does not have what the row says.
func (r *Runner) distrust(id core.ExtentID, at core.Place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.doubted[id] = at
	r.calm.Store(false)
}

// trust forgets it: the holder has all of it after all, or others have.
func (r *Runner) trust(id core.ExtentID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.doubted, id)
}

// doubts reports whether a holder is known not to have what the row says.
func (r *Runner) doubts(id core.ExtentID, at core.Place) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	x, ok := r.mu.doubted[id]
	return ok && x.Same(at)
}

// mine reports whether this controller looks after the copies of an extent: it is responsible for the queue, or it
// alone knows that the last holder does not have what the row says. An inventory says that to the controller of the
// extent's range.
func (r *Runner) mine(e catalog.Extent) bool {
	_, doubted := r.doubted(e)
	return doubted || r.cfg.Responsible(e.Queue.ID)
}

// doubted is the holder of an extent that is known not to have what the row says.
func (r *Runner) doubted(e catalog.Extent) (core.Place, bool) {
	i := slices.IndexFunc(e.Holders, func(x core.Place) bool { return r.doubts(e.ID, x) })
	if i < 0 {
		return core.Place{}, false
	}
	return e.Holders[i], true
}

// forgetDoubts drops those about extents that are gone.
func (r *Runner) forgetDoubts(lives func(core.ExtentID) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.mu.doubted, func(id core.ExtentID, _ core.Place) bool { return !lives(id) })
}

// Sweep asks for a look at all extents: a store came, went or changed.
func (r *Runner) Sweep() { r.backlog.Sweep() }

const (
	sweepEvery = 10 * time.Second
	// calmEvery is how often all extents are judged while nothing changes and none of them waits for anything.
	calmEvery = time.Minute
	// repairTimeout bounds one try; the next one goes on where the copy ends.
	repairTimeout = 5 * time.Minute
	// mostNamed bounds the extents that one line of the log names.
	mostNamed = 8
)

// Run keeps as many copies of sealed extents as are wanted, until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	urgent, others := make(chan struct{}, r.cfg.AtOnce), make(chan struct{}, r.cfg.AtOnce)
	for ctx.Err() == nil {
		r.startRepairs(true, urgent) // these never wait for slow copies that nobody is in need of
		r.startRepairs(false, others)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !r.rests(r.cfg.Now()) {
				r.sweep()
			}
		case <-r.backlog.Woken():
			if r.backlog.TakeSweep() {
				r.sweep()
			}
		}
	}
}

// startRepairs hands out slots while there are any.
func (r *Runner) startRepairs(urgent bool, slots chan struct{}) {
	for {
		select {
		case slots <- struct{}{}:
		default:
			return
		}
		base, stop := context.WithCancelCause(r.cfg.Tasks.Context())
		id, ok := r.backlog.Next(urgent, r.cfg.Now(), stop)
		if ok {
			ok = r.cfg.Tasks.Go(func(context.Context) {
				ctx, cancel := context.WithTimeout(base, repairTimeout)
				defer cancel()
				err := r.repair(ctx, id, urgent)
				if err != nil && context.Cause(base) == backlog.ErrUrgent {
					err = backlog.ErrUrgent
				}
				if err != nil && !errors.Is(err, backlog.ErrNotUrgent) && ctx.Err() == nil {
					r.failed(id, err)
				}
				stop(nil)
				<-slots
				r.backlog.Ended(id, err, r.cfg.Now())
			})
		}
		if !ok {
			stop(nil)
			<-slots
			return
		}
	}
}

// repairable reports whether an extent is sealed and not being retired, and something of it is left.
func repairable(e *catalog.Extent) bool { return e.State == core.ExtentSealed && !e.Spent }

// rests reports whether a sweep would find what the last one found: nothing to do.
func (r *Runner) rests(now time.Time) bool {
	return r.calm.Load() && r.ends == r.cfg.Extents.Ends() && now.Sub(r.swept) < calmEvery
}

// sweep judges all sealed extents, in memory, and queues those that need something.
func (r *Runner) sweep() {
	r.sayFailed()
	now := r.cfg.Now()
	r.swept, r.ends = now, r.cfg.Extents.Ends()
	r.calm.Store(true)
	known := r.cfg.Stores.Snapshot()
	answers := r.cfg.Stores.Count(catalog.Store.Answering) > 0 // or each look would read a row in vain
	below, short := 0, 0
	var some []core.ExtentID
	for e := range r.cfg.Extents.All(repairable) {
		if !r.mine(e) {
			continue
		}
		j := r.judge(e, known, now)
		_, doubted := r.doubted(e)
		if j.Below {
			if below++; len(some) < mostNamed {
				some = append(some, e.ID)
			}
		}
		if j.Good < e.Copies() {
			short++
		}
		if !j.Repair {
			r.backlog.Found(e.ID) // another controller may have found it
		}
		wanted := j.Repair && (j.Good == 0 && answers || len(r.targets(e, known)) > 0) || j.Surplus > 0 || doubted && len(e.Holders) > 1
		wanted = wanted && !r.backlog.Rests(e.ID, now.Add(calmEvery))
		if doubted || j.Waits || wanted {
			r.calm.Store(false)
		}
		if !wanted {
			continue
		}
		if j.Below {
			r.backlog.Below(e.ID)
		} else {
			r.backlog.Add(e.ID, false)
		}
	}
	r.cfg.Metrics.Below.Set(float64(below))
	r.cfg.Metrics.Short.Set(float64(short))
	r.backlog.Forget(func(id core.ExtentID) bool { e, lives := r.cfg.Extents.Get(id); return lives && r.mine(e) })
	r.forgetDoubts(func(id core.ExtentID) bool { _, lives := r.cfg.Extents.Get(id); return lives })
	r.cfg.Metrics.Lost.Set(float64(len(r.backlog.AllLost())))
	if before := r.below; below > 0 && before == 0 {
		r.cfg.Log.Error("copies below minimum", "extents", below, "some", some)
	} else if below == 0 && before > 0 {
		r.cfg.Log.Info("copies are enough again")
	}
	r.below = below
	r.backlog.Wake()
}

// failed notes a try that has failed, for one line of the log: without stores, those of all extents fail.
func (r *Runner) failed(id core.ExtentID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &r.mu.failed
	if f.tries++; f.tries == 1 {
		f.err = err
	}
	if len(f.some) < mostNamed && !slices.Contains(f.some, id) {
		f.some = append(f.some, id)
	}
}

// sayFailed logs the tries that have failed since the last sweep.
func (r *Runner) sayFailed() {
	r.mu.Lock()
	f := r.mu.failed
	r.mu.failed = failures{}
	r.mu.Unlock()
	if f.tries > 0 {
		r.cfg.Log.Warn("the copies of extents stay as they are for now", "tries", f.tries, "some", f.some, "err", f.err)
	}
}

// contradicts reports whether the store is known to have another disk.
func contradicts(x core.Place, known map[core.HostID]catalog.Store) bool {
	is := known[x.Store].Identity.Disk
	return !x.Disk.IsZero() && !is.IsZero() && is != x.Disk
}

// judge what an extent's copies need.
func (r *Runner) judge(e catalog.Extent, known map[core.HostID]catalog.Store, now time.Time) judgement {
	var room [6]copied // most extents have no more, and each sweep judges all
	copies := room[:0]
	for _, x := range e.Holders {
		if !contradicts(x, known) {
			copies = append(copies, copied{Holder: !r.doubts(e.ID, x), Gone: r.goneFor(known, x.Store, now)})
		}
	}
	for _, id := range e.Replicas {
		if !e.Holds(id) && !contradicts(core.Place{Store: id, Disk: e.Disk(id)}, known) {
			copies = append(copies, copied{Gone: r.goneFor(known, id, now)})
		}
	}
	j := judge(copies, e.Copies(), patience{Blink: r.cfg.Blink, Gone: r.cfg.GoneAfter})
	if e.LostFrom > 0 { // each may have more than the others
		j.Surplus = 0
	}
	return j
}

// goneFor is how long a store has not answered; 0 when it does.
func (r *Runner) goneFor(known map[core.HostID]catalog.Store, id core.HostID, now time.Time) time.Duration {
	st, ok := known[id]
	switch {
	case !ok:
		return max(now.Sub(r.cfg.Since), 1)
	case st.Answering():
		return 0
	}
	return max(now.Sub(st.Seen), 1)
}

// targets are the stores that can take another copy, the best first: replicas that have a part of it already, then by
// placement.
func (r *Runner) targets(e catalog.Extent, known map[core.HostID]catalog.Store) []core.HostID {
	var zones []string
	has := make(map[core.HostID]bool)
	for _, x := range e.Holders {
		if !contradicts(x, known) {
			has[x.Store] = true
			zones = append(zones, known[x.Store].Zone)
		}
	}
	var among []core.HostID
	for id, st := range known {
		if st.Answering() && !st.Refuses && !has[id] {
			among = append(among, id)
		}
	}
	ranked := r.owner.Rank(e.ID, zones, among)
	slices.SortStableFunc(ranked, func(a, b core.HostID) int { return boolInt(isReplica(e, b)) - boolInt(isReplica(e, a)) })
	return ranked
}

func isReplica(e catalog.Extent, id core.HostID) bool { return slices.Contains(e.Replicas, id) }

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
