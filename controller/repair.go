package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
)

const (
	sweepEvery = 10 * time.Second
	// repairTimeout bounds one try; the next one goes on where the copy ends.
	repairTimeout = 5 * time.Minute
	minRetry      = 100 * time.Millisecond
	maxRetry      = time.Minute
	// mostNamed bounds the extents that one line of the log names.
	mostNamed = 8
)

// retry says when an extent whose repair failed is looked at again.
type retry struct {
	after time.Time
	pause time.Duration
}

// repairing is a look at an extent that is under way.
type repairing struct {
	urgent bool
	stop   context.CancelCauseFunc
	again  bool // a store came or went since it began: what it found may be old
}

// repairs are the extents whose copies are to be looked at. Safe for concurrent use.
type repairs struct {
	wake chan struct{}
	mu   struct {
		sync.Mutex
		sweep  bool                   // look at all extents
		queued map[core.ExtentID]bool // → in urgent
		urgent []core.ExtentID        // below the minimum, or somebody waits
		others []core.ExtentID        // those moved to urgent since stay, and are passed over
		busy   map[core.ExtentID]*repairing
		failed map[core.ExtentID]retry
		lost   map[core.ExtentID]struct{} // no store has all of them any more
	}
}

func newRepairs() *repairs {
	r := &repairs{wake: make(chan struct{}, 1)}
	r.mu.queued = make(map[core.ExtentID]bool)
	r.mu.busy = make(map[core.ExtentID]*repairing)
	r.mu.failed = make(map[core.ExtentID]retry)
	r.mu.lost = make(map[core.ExtentID]struct{})
	return r
}

// want asks for a look at one extent soon.
func (r *repairs) want(id core.ExtentID) {
	r.add(id, true)
	poke(r.wake)
}

// poke asks for a look at all extents: a store came, went or changed. Those that could not be copied need not wait any longer.
func (r *repairs) poke() {
	r.mu.Lock()
	r.mu.sweep = true
	for id, f := range r.mu.failed {
		r.mu.failed[id] = retry{pause: min(f.pause, 2*minRetry)} // that it has failed stays known
	}
	for _, x := range r.mu.busy {
		x.again = true
	}
	r.mu.Unlock()
	poke(r.wake)
}

func (r *repairs) add(id core.ExtentID, urgent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(id, urgent)
}

func (r *repairs) addLocked(id core.ExtentID, urgent bool) {
	was, ok := r.mu.queued[id]
	if ok && (was || !urgent) {
		return
	}
	r.mu.queued[id] = urgent
	if urgent {
		r.mu.urgent = append(r.mu.urgent, id)
	} else {
		r.mu.others = append(r.mu.others, id)
	}
}

// below asks for a look at an extent that has too few copies. A slow copy of it that is under way goes on in haste.
func (r *repairs) below(id core.ExtentID) {
	r.mu.Lock()
	x := r.mu.busy[id]
	r.addLocked(id, true)
	r.mu.Unlock()
	if x != nil && !x.urgent {
		x.stop(errUrgent)
	}
}

// next takes an urgent extent, or another, that may be looked at now, and marks it busy.
func (r *repairs) next(urgent bool, now time.Time, stop context.CancelCauseFunc) (core.ExtentID, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	queue := &r.mu.others
	if urgent {
		queue = &r.mu.urgent
	}
	for len(*queue) > 0 {
		id := (*queue)[0]
		*queue = (*queue)[1:]
		if is, ok := r.mu.queued[id]; !ok || is != urgent {
			continue
		}
		delete(r.mu.queued, id)
		_, busy := r.mu.busy[id]
		if busy || now.Before(r.mu.failed[id].after) {
			continue // the sweep, or who waits, brings it back
		}
		r.mu.busy[id] = &repairing{urgent: urgent, stop: stop}
		return id, true
	}
	return core.ExtentID{}, false
}

var (
	errNotUrgent = errors.New("it can wait, with the others") // what was asked for in haste
	errUrgent    = errors.New("it has become urgent")         // what was done slowly
)

// ended takes an extent back that was looked at.
func (r *repairs) ended(id core.ExtentID, err error, now time.Time) {
	r.mu.Lock()
	x := r.mu.busy[id]
	delete(r.mu.busy, id)
	switch {
	case err == nil:
		delete(r.mu.failed, id)
	case errors.Is(err, errNotUrgent), errors.Is(err, errUrgent):
		r.addLocked(id, errors.Is(err, errUrgent))
	case x.again:
		r.addLocked(id, x.urgent)
	default:
		f := r.mu.failed[id]
		f.pause = min(max(2*f.pause, minRetry), maxRetry)
		f.after = now.Add(f.pause)
		r.mu.failed[id] = f
	}
	r.mu.Unlock()
	poke(r.wake)
}

// failing reports whether making a copy has failed more than once in a row.
func (r *repairs) failing(id core.ExtentID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.failed[id].pause > minRetry
}

// lost notes that no store has all of an extent, and reports whether that is news.
func (r *repairs) lost(id core.ExtentID) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, was := r.mu.lost[id]
	r.mu.lost[id] = struct{}{}
	return !was
}

// found takes that back.
func (r *repairs) found(id core.ExtentID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.lost, id)
}

// allLost, sorted.
func (r *repairs) allLost() []core.ExtentID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.mu.lost), func(a, b core.ExtentID) int { return slices.Compare(a.ID[:], b.ID[:]) })
}

// takeSweep reports whether all extents are to be looked at, once.
func (r *repairs) takeSweep() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.mu.sweep
	r.mu.sweep = false
	return was
}

// forget drops what is noted of extents that are not live any more.
func (r *repairs) forget(live func(core.ExtentID) bool) {
	r.mu.Lock()
	noted := slices.AppendSeq(slices.Collect(maps.Keys(r.mu.failed)), maps.Keys(r.mu.lost))
	r.mu.Unlock()
	for _, id := range noted {
		if !live(id) {
			r.mu.Lock()
			delete(r.mu.failed, id)
			delete(r.mu.lost, id)
			r.mu.Unlock()
		}
	}
}

// repairLoop keeps as many copies of sealed extents as are wanted, until ctx ends.
func (h *Host) repairLoop(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	urgent, others := make(chan struct{}, h.cfg.RepairsAtOnce), make(chan struct{}, h.cfg.RepairsAtOnce)
	for ctx.Err() == nil {
		h.startRepairs(true, urgent) // these never wait for slow copies that nobody is in need of
		h.startRepairs(false, others)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			h.sweep()
		case <-h.repairs.wake:
			if h.repairs.takeSweep() {
				h.sweep()
			}
		}
	}
}

// startRepairs hands out slots while there are any.
func (h *Host) startRepairs(urgent bool, slots chan struct{}) {
	for {
		select {
		case slots <- struct{}{}:
		default:
			return
		}
		base, stop := context.WithCancelCause(h.tasks.Context())
		id, ok := h.repairs.next(urgent, h.deps.now(), stop)
		if ok {
			ok = h.tasks.Go(func(context.Context) {
				ctx, cancel := context.WithTimeout(base, repairTimeout)
				defer cancel()
				err := h.repair(ctx, id, urgent)
				if err != nil && context.Cause(base) == errUrgent {
					err = errUrgent
				}
				if err != nil && !errors.Is(err, errNotUrgent) && ctx.Err() == nil {
					h.log.Warn("the copies of an extent stay as they are for now", "extent", id, "err", err)
				}
				stop(nil)
				<-slots
				h.repairs.ended(id, err, h.deps.now())
			})
		}
		if !ok {
			stop(nil)
			<-slots
			return
		}
	}
}

// sweep judges all sealed extents, in memory, and queues those that need something.
func (h *Host) sweep() {
	now := h.deps.now()
	known := h.storeView()
	below, short := 0, 0
	var some []core.ExtentID
	for _, e := range h.extents.pick(func(e *extent) bool { return e.state == core.ExtentSealed }) {
		j := h.judge(e, known, now)
		if j.Below {
			if below++; len(some) < mostNamed {
				some = append(some, e.ID)
			}
		}
		if j.Good < e.wanted() {
			short++
		}
		if j.Repair && (j.Good == 0 || len(h.targets(e, known)) > 0) || j.Surplus > 0 {
			if j.Below {
				h.repairs.below(e.ID)
			} else {
				h.repairs.add(e.ID, false)
			}
		}
	}
	h.metrics.below.Set(float64(below))
	h.metrics.short.Set(float64(short))
	h.repairs.forget(func(id core.ExtentID) bool { _, ok := h.extents.get(id); return ok })
	h.metrics.lost.Set(float64(len(h.repairs.allLost())))
	if before := h.below.Swap(int64(below)); below > 0 && before == 0 {
		h.log.Error("copies below minimum", "extents", below, "some", some)
	} else if below == 0 && before > 0 {
		h.log.Info("copies are enough again")
	}
	poke(h.repairs.wake)
}

// storeView is all stores at one moment.
func (h *Host) storeView() map[core.HostID]store {
	h.stores.mu.Lock()
	defer h.stores.mu.Unlock()
	out := make(map[core.HostID]store, len(h.stores.mu.byID))
	for id, st := range h.stores.mu.byID {
		out[id] = *st
	}
	return out
}

// contradicts reports whether the store is known to have another disk.
func contradicts(x holder, known map[core.HostID]store) bool {
	is := known[x.store].identity.Disk
	return !x.disk.IsZero() && !is.IsZero() && is != x.disk
}

// judge what an extent's copies need.
func (h *Host) judge(e extent, known map[core.HostID]store, now time.Time) placement.Judgement {
	copies := make([]placement.Copy, 0, len(e.holders)+len(e.Replicas))
	for _, x := range e.holders {
		if !contradicts(x, known) {
			copies = append(copies, placement.Copy{Holder: true, Gone: h.goneFor(known, x.store, now)})
		}
	}
	for _, id := range e.Replicas {
		if !e.holds(id) && !contradicts(holder{id, e.Disk(id)}, known) {
			copies = append(copies, placement.Copy{Gone: h.goneFor(known, id, now)})
		}
	}
	return placement.Judge(copies, e.wanted(), placement.Patience{Blink: h.cfg.Blink, Gone: h.cfg.GoneAfter})
}

// goneFor is how long a store has not answered; 0 when it does.
func (h *Host) goneFor(known map[core.HostID]store, id core.HostID, now time.Time) time.Duration {
	st, ok := known[id]
	switch {
	case !ok:
		return max(now.Sub(h.hosts.since), 1)
	case st.answering():
		return 0
	}
	return max(now.Sub(st.seen), 1)
}

// targets are the stores that can take another copy, the best first: replicas that have a part of it already, then by placement.
func (h *Host) targets(e extent, known map[core.HostID]store) []core.HostID {
	var zones []string
	has := make(map[core.HostID]bool)
	for _, x := range e.holders {
		if !contradicts(x, known) {
			has[x.store] = true
			zones = append(zones, known[x.store].Zone)
		}
	}
	var candidates []placement.Candidate
	for id, st := range known {
		if st.answering() && !st.refuses && !has[id] {
			c := placement.Candidate{ID: id, Zone: st.Zone, Weight: st.load.Weight()}
			if st.load.NearlyFull() {
				c.Tier = placement.Full
			}
			candidates = append(candidates, c)
		}
	}
	ranked := placement.Replicas(e.ID.String(), placement.Need{Want: len(candidates), Min: len(candidates), Zones: zones}, candidates)
	slices.SortStableFunc(ranked, func(a, b core.HostID) int { return boolInt(isReplica(e, b)) - boolInt(isReplica(e, a)) })
	return ranked
}

func isReplica(e extent, id core.HostID) bool { return slices.Contains(e.Replicas, id) }

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
