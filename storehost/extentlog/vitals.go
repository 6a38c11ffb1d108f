package extentlog

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
)

// Vitals are how a log fares. Space, rate and syncs are up to a second old.
type Vitals struct {
	FreeBytes, TotalBytes uint64 // of the file system; zeros when it cannot say
	Refuses               bool   // no extent would be opened: no space, the log has failed, or the disk hangs
	Full                  bool   // no extent would be opened for want of space
	Extents               int    // replicas
	OpenExtents           int    // of them, those that take appends in this run
	DamagedExtents        int    // of them, those that are quarantined
	UncutExtents          int    // removed, but their records cannot be cut out of a damaged table: they get no new copy here
	Quarantined           uint64 // how often one was, in this run
	ScrubbedBytes         uint64 // verified in the background, in this run
	AppendBytesPerSecond  uint64 // over the last seconds
	// SyncP99 is of the rounds of the last seconds, each from its write until it is durable; 0 without any.
	SyncP99 time.Duration
	// Hangs is for how long the oldest round that is under way has been, or for how long none of many reads has ended: a
	// disk that answers nothing at all. 0 without.
	Hangs        time.Duration
	RemovedBytes uint64 // of removed extents, about, that files with other extents still take
	MovedBytes   uint64 // of batches that were moved to other files to free these, in this run
	Log          LogVitals
}

// LogVitals tell of the log in front of the database.
type LogVitals struct {
	Bytes, FreeBytes uint64        // of its segments, and of those that are free
	UndrainedBytes   uint64        // of batches that only the log has
	Age              time.Duration // since the oldest of these was appended, or this run began; 0 without any
	DrainedBytes     uint64        // of batches, in this run
	DroppedBytes     uint64        // of batches that were removed before they were drained, in this run
	Waited           time.Duration // that appends waited for a free segment, in this run
}

// HangsAt is from when on a disk counts as hung: the store takes no new extents, and no calls wait for it any more.
const HangsAt = 3 * time.Second

const (
	vitalSeconds = 5   // that rates and quantiles look back
	vitalRounds  = 128 // looked at of each second
)

// pulse gathers what Vitals tell. settleLoop adds, housekeep turns seconds over, anybody reads seen.
type pulse struct {
	seen atomic.Pointer[Vitals]
	mu   struct {
		sync.Mutex
		seconds [vitalSeconds + 1]second // a ring; the one at now is being filled
		now     int
		filled  int         // whole seconds there are
		begun   []time.Time // rounds under way, oldest first; as many as there are at most, see commitLoop
	}
}

// begin notes a round that is taken; settleLoop ends it.
func (p *pulse) begin(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.begun = append(p.mu.begun, at)
}

// end notes that the oldest round is settled.
func (p *pulse) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.begun = append(p.mu.begun[:0], p.mu.begun[1:]...)
}

// hangs is for how long the oldest round has been under way.
func (p *pulse) hangs(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.begun) == 0 {
		return 0
	}
	return max(now.Sub(p.mu.begun[0]), 0)
}

type second struct {
	bytes  uint64
	rounds int // of which the last vitalRounds are in took
	took   [vitalRounds]time.Duration
}

// beat notes a round of appends that became durable.
func (p *pulse) beat(bytes int, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.mu.seconds[p.mu.now]
	s.bytes += uint64(bytes)
	s.took[s.rounds%vitalRounds] = took
	s.rounds++
}

// turn ends a second and answers the rate and the quantile over the last ones.
func (p *pulse) turn() (bytesPerSecond uint64, p99 time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.filled = min(p.mu.filled+1, vitalSeconds)
	p.mu.now = (p.mu.now + 1) % len(p.mu.seconds)
	p.mu.seconds[p.mu.now] = second{}
	var took []time.Duration
	for i := range p.mu.seconds {
		s := &p.mu.seconds[i]
		bytesPerSecond += s.bytes
		took = append(took, s.took[:min(s.rounds, vitalRounds)]...)
	}
	if len(took) > 0 {
		slices.Sort(took)
		p99 = took[(len(took)*99-1)/100]
	}
	return bytesPerSecond / uint64(p.mu.filled), p99
}

// Vitals implements Log.
func (e *Engine) Vitals() Vitals {
	v := *e.pulse.seen.Load()
	v.Extents, v.OpenExtents, v.DamagedExtents = e.index.totals()
	v.UncutExtents = e.uncut.count()
	v.Quarantined, v.ScrubbedBytes = e.quarantined.Load(), e.scrubbed.Load()
	v.Hangs = max(e.pulse.hangs(time.Now()), e.reads.hang(time.Now()))
	v.SyncP99 = max(v.SyncP99, v.Hangs)
	v.Full = core.CodeOf(e.refusing()) == core.CodeNoSpace || e.space.refuseOpen() != nil
	v.Refuses = e.refusing() != nil || v.Full || e.lateOpening() != nil || v.Hangs >= HangsAt
	return v
}

// takePulse makes the vitals of the second that has passed; only housekeep and Open call it.
func (e *Engine) takePulse() {
	rate, p99 := e.pulse.turn()
	fill := e.space.fill()
	e.pulse.seen.Store(&Vitals{
		FreeBytes: uint64(fill.free), TotalBytes: uint64(fill.total), AppendBytesPerSecond: rate, SyncP99: p99,
		RemovedBytes: uint64(e.journal.keeper.dead.Load()), MovedBytes: e.journal.keeper.moved.Load(),
		Log: e.journal.vitals(time.Now()),
	})
}

// vitals are asked for by who opens the ring anew: housekeep and Open.
func (j *journal) vitals(now time.Time) LogVitals {
	if j.ring == nil { // it could not be opened anew
		return LogVitals{}
	}
	free, all := j.ring.Room()
	v := LogVitals{
		Bytes: uint64(all), FreeBytes: uint64(free), UndrainedBytes: uint64(j.keeper.bytes.Load()),
		DrainedBytes: j.keeper.drained.Load(), DroppedBytes: j.keeper.dropped.Load(), Waited: time.Duration(j.keeper.waited.Load()),
	}
	if since := j.keeper.oldest(); !since.IsZero() {
		v.Age = max(now.Sub(since), 0)
	}
	return v
}
