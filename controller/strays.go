package controller

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// strayAfter is how long metadata must lack an extent before a store's word registers it: a row written at ONE may be
	// late.
	strayAfter = 5 * time.Minute
	// strayAgain is the pause after a look at a stray that failed; orphanAgain after one that found no queue: metadata may
	// be restored.
	strayAgain  = 30 * time.Second
	orphanAgain = time.Hour
	// maxStrays bounds how many are remembered; others are met again with the next whole inventory.
	maxStrays = 10_000
)

// log of orphans: one line a minute at most.
const orphansEvery = time.Minute

// strays are replicas of extents that this controller does not know. Safe for concurrent use.
type strays struct {
	most    int
	orphans *orphans
	mu      struct {
		sync.Mutex
		byID map[core.ExtentID]*stray
	}
}

// stray is one of them. Only its stores are written by others than settleStrays.
type stray struct {
	extent core.Extent
	stores map[core.HostID]core.DiskID
	since  time.Time
	after  time.Time // when it is looked at next
	orphan bool      // its queue is not known either: kept as it is
	old    bool      // it may have been retired so long ago that its seal row has ended: kept as it is, too
}

func newStrays() *strays {
	s := &strays{most: maxStrays, orphans: newOrphans()}
	s.mu.byID = make(map[core.ExtentID]*stray)
	return s
}

// add notes that a store has an extent that is not known here. Those about which nothing can be done make room.
func (s *strays) add(st catalog.Store, tuple core.Extent, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.mu.byID[tuple.ID]
	if x == nil {
		if len(s.mu.byID) >= s.most && !s.dropOrphanLocked() {
			return
		}
		x = &stray{extent: tuple, stores: make(map[core.HostID]core.DiskID), since: now, after: now}
		s.mu.byID[tuple.ID] = x
	}
	x.stores[st.ID] = st.Identity.Disk
}

// dropOrphanLocked looks at a few of them only: an inventory may have a million that do not fit.
func (s *strays) dropOrphanLocked() bool {
	const few = 64
	n := 0
	for id, x := range s.mu.byID {
		if x.orphan || x.old {
			delete(s.mu.byID, id)
			return true
		}
		if n++; n == few {
			break
		}
	}
	return false
}

// due are those that are to be looked at, with a copy of their stores each.
func (s *strays) due(now time.Time) (out []stray) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.mu.byID {
		if !x.after.After(now) {
			y := *x
			y.stores = maps.Clone(x.stores)
			out = append(out, y)
		}
	}
	return out
}

// has reports whether a store has an extent with this tuple.
func (s *strays) has(e core.Extent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.mu.byID[e.ID]
	return x != nil && x.extent.Equal(e)
}

// looked notes what came of a look; strayKnown forgets the stray.
func (s *strays) looked(id core.ExtentID, v strayVerdict, after time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.mu.byID[id]; v == strayKnown {
		delete(s.mu.byID, id)
	} else if x != nil {
		x.orphan, x.old, x.after = v == strayOrphan, v == strayOld, after
	}
}

// countOld is how many are kept because their seal rows may have ended.
func (s *strays) countOld() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.mu.byID {
		if x.old {
			n++
		}
	}
	return n
}

// orphaned are those of no known queue.
func (s *strays) orphaned() (out []stray) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.mu.byID {
		if x.orphan {
			y := *x
			y.stores = maps.Clone(x.stores)
			out = append(out, y)
		}
	}
	return out
}

// keep forgets those whose ranges are other controllers'.
func (s *strays) keep(mine func(core.ExtentID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.mu.byID, func(id core.ExtentID, _ *stray) bool { return !mine(id) })
}

// lookAgain has the orphans looked at now.
func (s *strays) lookAgain(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.mu.byID {
		if x.orphan {
			x.after = now
		}
	}
}

// settleStrays decides about extents that this controller knows from stores only: those retired are removed, those that
// another controller made are taken in, and those whose rows were lost are registered again. Those of no known queue
// are orphans: they stay until it is proven that their queue is gone. Old ones without rows stay, too: they may be
// retired, or their rows were lost. A miss or a failed answer removes nothing.
func (h *Host) settleStrays(ctx context.Context, s *strays) {
	s.keep(h.inventories)
	for _, x := range s.due(h.deps.now()) {
		if ctx.Err() != nil {
			return
		}
		verdict, err := h.settleStray(ctx, x)
		now := h.deps.now()
		after := now.Add(strayAgain)
		switch {
		case err != nil:
			h.log.Info("an extent without rows stays as it is for now", "extent", x.extent.ID, "err", err)
			switch verdict = strayEarly; { // what was known of it still holds
			case x.orphan:
				verdict = strayOrphan
			case x.old:
				verdict = strayOld
			}
		case verdict == strayEarly:
			after = x.since.Add(strayAfter)
		case verdict == strayOld:
			after = now.Add(orphanAgain)
			if !x.old {
				h.log.Warn("a store has an old extent without rows: the extent may have been retired, so it is not registered again, and the store keeps it. If the metadata lost the rows, restore a newer copy", "extent", x.extent.ID, "queue", x.extent.Queue)
			}
		case verdict == strayOrphan:
			after = now.Add(orphanAgain)
			if s.orphans.seen(x.extent, now) && h.endOrphan(ctx, x) {
				after = now // its queue is known as deleted from now on
			}
		}
		s.looked(x.extent.ID, verdict, after)
	}
	h.metrics.old.Set(float64(s.countOld()))
	all := s.orphaned()
	h.metrics.orphans.Set(float64(len(all)))
	if some, news := s.orphans.dueLog(h.deps.now()); news > 0 {
		h.log.Error("stores have extents of queues that are not in the metadata: if the metadata lost the queues, restore a newer copy within seven days; "+
			"to remove them now: `columba delete orphans`", "extents", len(all), "new", news, "some", some)
	}
}

// strayVerdict is what a stray turned out to be.
type strayVerdict int

const (
	strayKnown  strayVerdict = iota // or removed: none any more
	strayEarly                      // its row may still come
	strayOrphan                     // of no queue
	strayOld                        // its seal row may have ended, and it has no create row
)

func (h *Host) settleStray(ctx context.Context, x stray) (strayVerdict, error) {
	id := x.extent.ID
	if _, known := h.extents.Get(id); known {
		return strayKnown, nil
	}
	late := h.deps.now().Sub(x.since) >= strayAfter
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(id), metadata.Quorum)
	switch {
	case err == nil && row.State == core.ExtentRetired:
		return strayKnown, h.removeLeftover(ctx, row, x)
	case err == nil && late: // its hints were lost
		return strayKnown, h.note(ctx, row)
	case err != nil && core.CodeOf(err) != core.CodeNotFound:
		return strayEarly, err
	case !late:
		return strayEarly, nil
	}
	created, err := h.createdRow(ctx, x.extent)
	if err != nil {
		return strayEarly, err
	}
	if !created.Extent.Equal(x.extent) {
		return strayEarly, core.Errorf(core.CodeConflict, "a store has extent %s with another tuple than its row", id)
	}
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(x.extent.Queue), metadata.Quorum)
	if core.CodeOf(err) == core.CodeNotFound {
		return strayOrphan, nil
	}
	if err != nil {
		return strayEarly, err
	}
	if !created.Created.IsZero() {
		return strayKnown, h.adopt(ctx, created)
	}
	if q.Spec.Status != core.StatusDeleted && metadata.SealMayHaveEnded(id, h.deps.now()) { // else it is registered to be removed
		return strayOld, nil
	}
	h.log.Warn("an extent whose rows were lost is registered again", "extent", id, "queue", x.extent.Queue)
	_, err = h.seal(ctx, order{extent: x.extent, reason: "registered again", found: true})
	return strayKnown, err
}

// adopt takes in an open extent that another controller made, or whose hints were lost. Its writer may be well: rounds
// seal the extent if it is not.
func (h *Host) adopt(ctx context.Context, r metadata.ExtentRecord) error {
	if err := h.writeHints(ctx, r, h.deps.now()); err != nil {
		return core.Errorf(core.CodeOf(err), "write the hints of extent %s: %w", r.ID, err)
	}
	h.meet(catalog.Extent{ExtentRecord: r, State: core.ExtentOpen, Home: r.Home})
	return nil
}

// removeLeftover removes what stores still have of an extent that was retired while they were away. A store that is
// away again, or has another disk, shows what it has when it is back.
func (h *Host) removeLeftover(ctx context.Context, row metadata.SealRecord, x stray) (err error) {
	for id, disk := range x.stores {
		if st, ok := h.stores.Get(id); !ok || !st.Answering() || st.Identity.Disk != disk {
			continue
		}
		if rerr := h.replicas.Remove(ctx, row, core.Place{Store: id, Disk: disk}); rerr != nil {
			err = rerr
		}
	}
	return err
}
