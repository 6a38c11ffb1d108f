package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/columbamq/columba/controller/backlog"
	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
)

const (
	sweepEvery = 10 * time.Second
	// repairTimeout bounds one try; the next one goes on where the copy ends.
	repairTimeout = 5 * time.Minute
	// mostNamed bounds the extents that one line of the log names.
	mostNamed = 8
)

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
		case <-h.repairs.Woken():
			if h.repairs.TakeSweep() {
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
		id, ok := h.repairs.Next(urgent, h.deps.now(), stop)
		if ok {
			ok = h.tasks.Go(func(context.Context) {
				ctx, cancel := context.WithTimeout(base, repairTimeout)
				defer cancel()
				err := h.repair(ctx, id, urgent)
				if err != nil && context.Cause(base) == backlog.ErrUrgent {
					err = backlog.ErrUrgent
				}
				if err != nil && !errors.Is(err, backlog.ErrNotUrgent) && ctx.Err() == nil {
					h.log.Warn("the copies of an extent stay as they are for now", "extent", id, "err", err)
				}
				stop(nil)
				<-slots
				h.repairs.Ended(id, err, h.deps.now())
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
				h.repairs.Below(e.ID)
			} else {
				h.repairs.Add(e.ID, false)
			}
		}
	}
	h.metrics.below.Set(float64(below))
	h.metrics.short.Set(float64(short))
	h.repairs.Forget(func(id core.ExtentID) bool { _, ok := h.extents.get(id); return ok })
	h.metrics.lost.Set(float64(len(h.repairs.AllLost())))
	if before := h.below.Swap(int64(below)); below > 0 && before == 0 {
		h.log.Error("copies below minimum", "extents", below, "some", some)
	} else if below == 0 && before > 0 {
		h.log.Info("copies are enough again")
	}
	h.repairs.Wake()
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
func contradicts(x core.Place, known map[core.HostID]store) bool {
	is := known[x.Store].identity.Disk
	return !x.Disk.IsZero() && !is.IsZero() && is != x.Disk
}

// judge what an extent's copies need.
func (h *Host) judge(e extent, known map[core.HostID]store, now time.Time) placement.Judgement {
	copies := make([]placement.Copy, 0, len(e.holders)+len(e.Replicas))
	for _, x := range e.holders {
		if !contradicts(x, known) {
			copies = append(copies, placement.Copy{Holder: true, Gone: h.goneFor(known, x.Store, now)})
		}
	}
	for _, id := range e.Replicas {
		if !e.holds(id) && !contradicts(core.Place{Store: id, Disk: e.Disk(id)}, known) {
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
			has[x.Store] = true
			zones = append(zones, known[x.Store].Zone)
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
