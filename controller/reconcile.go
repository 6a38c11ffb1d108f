package controller

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
)

const (
	// looksAtOnce bounds the extents that rounds look after side by side.
	looksAtOnce = 128
	// renewEvery is how often rounds take in all extents whose seal is not finished, and not only the news: nothing stays
	// unsealed for a turn that was forgotten.
	renewEvery = 5 * time.Minute
)

// reconcile compares what should be with what is, by level: extents whose writer is gone are sealed, seals that did not
// finish go on, holders that were not told their end are told. It looks at extents whose turn has come only.
func (h *Host) reconcile() {
	now, away := h.deps.now(), make(map[catalog.HostRun]bool)
	if now.Sub(h.renewed) >= renewEvery {
		h.renewed = now
		h.extents.RenewUnfinished()
	}
	for _, id := range h.extents.TakeUnfinished(func(w catalog.HostRun) bool {
		away[w] = h.hosts.fate(w.Host, w.Run, now) == gone
		return away[w]
	}) {
		h.tries.add(id)
		h.stillUndecided(id)
	}
	h.alarmUndecided(now)
	type turn struct {
		id  core.ExtentID
		due time.Time
	}
	var busy []turn
	for {
		id, due, ok := h.tries.next(now)
		if !ok {
			break
		}
		began := h.tend(id, now, away)
		if began == lookBusy {
			busy = append(busy, turn{id, due})
		}
		if began == lookFull {
			h.tries.addAt(id, due)
			break
		}
	}
	for _, t := range busy {
		h.tries.addAt(t.id, t.due)
	}
}

// tend looks after an extent whose turn has come, if it needs that. One that changes later is added again, and so is an
// open one whose writer is found gone later: away is what this round has found.
func (h *Host) tend(id core.ExtentID, now time.Time, away map[catalog.HostRun]bool) begun {
	e, known := h.stillUndecided(id)
	switch {
	case !known:
		h.tries.succeed(id)
	case e.State == core.ExtentOpen && (e.Home.Kind == core.HomeStaging || !away[catalog.HostRun{Host: e.Input, Run: e.InputRun}]): // its operation ends it, or its writer
	case e.State == core.ExtentOpen:
		return h.sealSoon(e.Extent, "input host gone")
	case e.State == core.ExtentSealing:
		return h.sealSoon(e.Extent, "resumed")
	case e.State.HasEnd() && !e.Told:
		if !h.reachesAHolder(e) { // freeStuck comes sooner
			h.tries.addAt(id, now.Add(maxStuck))
			break
		}
		return h.lookInTurn(id, func(ctx context.Context) { h.noteStuck(id, !h.tellAgain(ctx, e)) })
	}
	return lookNone
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
func (h *Host) sealSoon(e core.Extent, reason string) begun {
	return h.lookInTurn(e.ID, func(ctx context.Context) { h.sealUnasked(ctx, e, reason) })
}

// lookInTurn is look for an extent whose turn has come. It waits for its next one from the end of f on.
func (h *Host) lookInTurn(id core.ExtentID, f func(ctx context.Context)) begun {
	return h.look(id, func(ctx context.Context) {
		defer h.tries.add(id)
		f(ctx)
	})
}

// sealUnasked seals an extent, and logs the first try that fails: many may fail every 30 s, for days. alarmUndecided
// goes on to tell of them. A controller that another one keeps from its session lease may be cut off from the hosts, or
// belong to no cluster: all writers are gone to it.
func (h *Host) sealUnasked(ctx context.Context, e core.Extent, reason string) {
	if h.duties.StandsBack() != nil || h.duties.Blocked() {
		return
	}
	level := slog.LevelWarn
	if h.isStuck(e.ID) {
		level = slog.LevelDebug
	}
	_, err := h.seal(ctx, order{extent: e, reason: reason})
	if err != nil && ctx.Err() == nil {
		h.log.Log(ctx, level, "extent cannot be sealed yet", "extent", e.ID, "err", err)
	}
}

// isStuck reports whether sealing an extent has failed since a store came or went.
func (h *Host) isStuck(id core.ExtentID) bool { return h.tries.hasFailed(id) }

// noteStuck has an extent wait for its next try if this one failed. While the metadata refuse calls, all wait at the
// gate instead.
func (h *Host) noteStuck(id core.ExtentID, failed bool) {
	switch {
	case !failed:
		h.tries.succeed(id)
	case !h.gate.isClosed():
		h.tries.fail(id, h.deps.now())
	}
}

// raise counts the alarm of each try, and logs it unless the try before had the same one: an extent whose stores stay
// away is tried again every few seconds, for days.
func (h *Host) raise(id core.ExtentID, d seal.Decision) {
	h.metrics.alarms.WithLabelValues(string(d.Alarm)).Inc()
	if h.tries.raise(id, d.Alarm) {
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
		h.tries.add(e.ID) // a round finds out whether the extent has got its end meanwhile
	}
}

// stillUndecided is what is known of an extent. One that has an end, or is not known any more, is not undecided.
func (h *Host) stillUndecided(id core.ExtentID) (e catalog.Extent, known bool) {
	if e, known = h.extents.Get(id); !known || e.State.HasEnd() {
		h.undecided.forget(id)
	}
	return e, known
}

// freeStuck lets all be tried again: a store came back.
func (h *Host) freeStuck() {
	h.tries.free()
	h.pokeMoved()
}

// begun says whether a look has begun.
type begun uint8

const (
	lookBegan begun = iota
	lookNone        // it was not needed
	lookBusy        // the last one of this extent is under way
	lookFull        // too many others are, or the controller is stopping
)

// look starts f, which looks after an extent, unless the last such is still under way, or too many others are: what
// hangs must not pile up, and a later round finds what was left out. While the metadata refuse calls, f waits.
func (h *Host) look(id core.ExtentID, f func(ctx context.Context)) begun {
	h.mu.Lock()
	_, busy := h.mu.looking[id]
	full := len(h.mu.looking) >= looksAtOnce
	h.mu.leftOut = h.mu.leftOut || full
	if !busy && !full {
		h.mu.looking[id] = struct{}{}
	}
	h.mu.Unlock()
	switch {
	case full:
		return lookFull
	case busy:
		return lookBusy
	}
	if !h.tasks.Go(func(ctx context.Context) {
		defer h.looked(id)
		if h.gate.wait(ctx) == nil {
			f(ctx)
		}
	}) {
		h.looked(id)
		return lookFull
	}
	return lookBegan
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
