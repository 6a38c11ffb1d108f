package extentlog

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
)

// Bounds of the cutting of small ranges: each costs a sync of the manifest, and goes on beside appends.
const (
	sweepOften = time.Second     // on a disk that fills
	sweepEvery = 5 * time.Second // on others
	sweepMost  = 64              // ranges at once
	maxDebris  = 1 << 16         // extents that wait; the space of others returns with compactions
)

// debris are removed extents whose records are in tables, and too small to be cut out one by one. One of them would
// keep the space of all that was removed from its table. Safe for concurrent use.
type debris struct {
	mu struct {
		sync.Mutex
		fresh map[core.ExtentID]bool // whether it has an index of timers
	}
	ripe map[core.ExtentID]bool // of the turn before; those of new extents have later ids
}

func (d *debris) add(id core.ExtentID, timer bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.fresh == nil {
		d.mu.fresh = make(map[core.ExtentID]bool)
	}
	if len(d.mu.fresh) < maxDebris {
		d.mu.fresh[id] = timer
	}
}

// turn makes what is fresh ripe, as far as there is room.
func (d *debris) turn() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.ripe) == 0 {
		d.ripe, d.mu.fresh = d.mu.fresh, nil
	}
}

// debrisRun is a range of ids of which no extent is here.
type debrisRun struct {
	ids   []core.ExtentID
	timer bool
}

func compareIDs(a, b core.ExtentID) int { return bytes.Compare(a.ID[:], b.ID[:]) }

// debrisRuns are the longest runs of removed ids with no extent between them. Both lists are sorted. An id of an extent
// that is back is in none.
func debrisRuns(gone map[core.ExtentID]bool, here []core.ExtentID) (runs []debrisRun) {
	open := false
	for _, id := range slices.SortedFunc(maps.Keys(gone), compareIDs) {
		for ; len(here) > 0 && compareIDs(here[0], id) < 0; here = here[1:] {
			open = false
		}
		if len(here) > 0 && here[0] == id {
			open = false
			continue
		}
		if !open {
			runs = append(runs, debrisRun{})
			open = true
		}
		r := &runs[len(runs)-1]
		r.ids, r.timer = append(r.ids, id), r.timer || gone[id]
	}
	return runs
}

// keepSweeping cuts debris out until the log closes.
func (e *Engine) keepSweeping() {
	for waited := time.Duration(0); e.pause(sweepOften); {
		if waited += sweepOften; waited < sweepEvery && !e.space.fills() {
			continue
		}
		waited = 0
		if len(e.debris.ripe) > 0 && e.refusing() == nil {
			if err := e.sweep(); err != nil && e.refusing() == nil {
				e.log.Error("the records of small removed extents cannot be cut out: they keep their space until their tables are compacted", "err", err)
			}
		}
		e.debris.turn()
	}
}

// sweep cuts ripe debris out. Meanwhile no extent with an id up to the last one comes here: it would be cut, too.
func (e *Engine) sweep() error {
	done, err := e.reading() // keeps the database open
	if err != nil {
		return err
	}
	defer done()
	here := e.beginSweep(slices.MaxFunc(slices.Collect(maps.Keys(e.debris.ripe)), compareIDs))
	defer e.endSweep()
	slices.SortFunc(here, compareIDs)
	runs := debrisRuns(e.debris.ripe, here)
	left := make(map[core.ExtentID]bool)
	for _, r := range runs[min(sweepMost, len(runs)):] {
		for _, id := range r.ids {
			left[id] = e.debris.ripe[id]
		}
	}
	e.debris.ripe = left
	for _, r := range runs[:min(sweepMost, len(runs))] {
		for _, prefix := range contents(r.timer) {
			span := pebble.KeyRange{Start: extentKey(prefix, r.ids[0]), End: afterExtent(prefix, r.ids[len(r.ids)-1])}
			if err := e.guarded(func() error { return e.cutOut(span) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Engine) beginSweep(last core.ExtentID) (here []core.ExtentID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.swept, e.mu.sweeping = last, make(chan struct{})
	return slices.Collect(maps.Keys(e.mu.extents))
}

func (e *Engine) endSweep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.swept = core.ExtentID{}
	close(e.mu.sweeping)
}

// errSwept is the cause of the error of a step for an extent that may not come during a sweep.
var errSwept = errors.New("small extents are being removed")

// awaitSweep waits for the end of the sweep under way; false when the log closes, or has failed.
func (e *Engine) awaitSweep() bool {
	e.mu.RLock()
	over := e.mu.sweeping
	e.mu.RUnlock()
	select {
	case <-over:
		return true
	case <-e.stop:
	case <-e.failed:
	}
	return false
}
