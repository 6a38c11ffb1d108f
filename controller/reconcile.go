package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
)

const (
	// looksAtOnce bounds the extents that rounds look after side by side.
	looksAtOnce = 128
	minStuck    = time.Second
	maxStuck    = 30 * time.Second
)

// retry says when an extent that could not be sealed, or whose holders could not be told, is tried again.
type retry struct {
	after time.Time
	pause time.Duration
	alarm seal.Alarm // that was raised last
}

// reconcile compares what should be with what is, by level: extents whose writer is gone are sealed, seals that did not finish go on,
// holders that were not told their end are told. It looks at extents whose seal is not finished only.
func (h *Host) reconcile() {
	now := h.deps.now()
	h.alarmUndecided()
	due := h.extents.Unfinished(func(w catalog.HostRun) bool { return h.hosts.fate(w.Host, w.Run, now) == gone })
	for _, e := range h.fairly(due, now) {
		switch {
		case e.State == core.ExtentOpen && e.Home.Kind == core.HomeStaging: // its operation ends it
		case e.State == core.ExtentOpen:
			h.sealSoon(e.Extent, "input host gone")
		case e.State == core.ExtentSealing:
			h.sealSoon(e.Extent, "resumed")
		case e.State.HasEnd() && h.reachesAHolder(e):
			h.look(e.ID, func(ctx context.Context) { h.noteStuck(e.ID, !h.tellAgain(ctx, e)) })
		}
	}
}

// fairly leaves out those that have failed a moment ago, and orders the others: first those that have not failed, oldest first, then those whose time came first. However many
// fail again and again, others get their turn.
func (h *Host) fairly(all []catalog.Extent, now time.Time) []catalog.Extent {
	h.mu.Lock()
	defer h.mu.Unlock()
	all = slices.DeleteFunc(all, func(e catalog.Extent) bool { return now.Before(h.mu.stuck[e.ID].after) })
	slices.SortFunc(all, func(a, b catalog.Extent) int {
		return cmp.Or(h.mu.stuck[a.ID].after.Compare(h.mu.stuck[b.ID].after), slices.Compare(a.ID.ID[:], b.ID.ID[:]))
	})
	return all
}

// reachesAHolder: telling makes sense.
func (h *Host) reachesAHolder(e catalog.Extent) bool {
	for _, x := range e.Holders {
		if h.stores.Answers(x.Store) {
			return true
		}
	}
	return false
}

// sealSoon seals an extent that nobody waits for.
func (h *Host) sealSoon(e core.Extent, reason string) {
	h.look(e.ID, func(ctx context.Context) { h.sealUnasked(ctx, e, reason) })
}

func (h *Host) sealUnasked(ctx context.Context, e core.Extent, reason string) {
	_, err := h.seal(ctx, order{extent: e, reason: reason})
	if err != nil && ctx.Err() == nil {
		h.log.Warn("extent cannot be sealed yet", "extent", e.ID, "err", err)
	}
}

// isStuck reports whether sealing an extent has failed since a store came or went.
func (h *Host) isStuck(id core.ExtentID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, stuck := h.mu.stuck[id]
	return stuck
}

// noteStuck has an extent wait for its next try if this one failed. While the metadata refuse calls, all wait at the gate instead.
func (h *Host) noteStuck(id core.ExtentID, failed bool) {
	if failed && h.gate.isClosed() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !failed {
		delete(h.mu.stuck, id)
		return
	}
	r := h.mu.stuck[id]
	r.pause = min(max(2*r.pause, minStuck), maxStuck)
	r.after = h.deps.now().Add(r.pause)
	h.mu.stuck[id] = r
}

// raise counts the alarm of each try, and logs it unless the try before had the same one: an extent whose stores stay away is tried again every few
// seconds, for days.
func (h *Host) raise(id core.ExtentID, d seal.Decision) {
	h.metrics.alarms.WithLabelValues(string(d.Alarm)).Inc()
	h.mu.Lock()
	r := h.mu.stuck[id]
	news := r.alarm != d.Alarm
	r.alarm = d.Alarm
	h.mu.stuck[id] = r
	h.mu.Unlock()
	if news {
		h.log.Error("seal alarm", "extent", id, "alarm", d.Alarm, "reason", d.Reason)
	}
}

// noteUndecided keeps why an extent has no end yet, for operators.
func (h *Host) noteUndecided(e core.Extent, err error) {
	var s stays
	switch {
	case err == nil:
		h.undecided.forget(e.ID)
	case errors.As(err, &s):
		h.undecided.failed(e, err, s.decision.NotReached, h.deps.now())
	}
}

// freeStuck lets all be tried again: a store came back.
func (h *Host) freeStuck() {
	h.mu.Lock()
	clear(h.mu.stuck)
	h.mu.Unlock()
	h.pokeMoved()
}

// look starts f, which looks after an extent, unless the last such is still under way, or too many others are: what hangs must not pile
// up, and a later round finds what was left out. While the metadata refuse calls, f waits.
func (h *Host) look(id core.ExtentID, f func(ctx context.Context)) bool {
	h.mu.Lock()
	_, busy := h.mu.looking[id]
	full := len(h.mu.looking) >= looksAtOnce
	h.mu.leftOut = h.mu.leftOut || full
	if !busy && !full {
		h.mu.looking[id] = struct{}{}
	}
	h.mu.Unlock()
	if busy || full {
		return false
	}
	begun := h.tasks.Go(func(ctx context.Context) {
		defer h.looked(id)
		if h.gate.wait(ctx) == nil {
			f(ctx)
		}
	})
	if !begun {
		h.looked(id)
	}
	return begun
}

func (h *Host) looked(id core.ExtentID) {
	h.mu.Lock()
	delete(h.mu.looking, id)
	again := h.mu.leftOut && len(h.mu.looking) < looksAtOnce/2
	if again {
		h.mu.leftOut = false
	}
	h.mu.Unlock()
	if again {
		poke(h.again)
	}
}
