package extentlog

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
)

// Bounds of the cutting of small ranges: each costs a sync of the manifest, and goes on beside appends.
const (
	sweepOften = time.Second            // on a disk that fills
	sweepEvery = 5 * time.Second        // on others
	sweepMost  = 64                     // ranges at once
	sweepLong  = 250 * time.Millisecond // in which ranges are begun; extents that come back wait
	maxDebris  = 1 << 16                // extents that wait; the space of others returns with compactions
)

// debris are removed extents whose records are in tables, and too small to be cut out one by one. One of them would
// keep the space of all that was removed from its table. Safe for concurrent use.
type debris struct {
	mu struct {
		sync.Mutex
		fresh map[core.ExtentID]bool // whether it has an index of timers
		bytes int64                  // of the fresh ones
	}
	refused atomic.Int32           // steps that a sweep refused, and that are tried again
	many    chan struct{}          // capacity 1: they take so much space that they are to be cut out at once
	ripe    map[core.ExtentID]bool // of the turn before; those of new extents have later ids
}

// add notes a removed extent of so many bytes. More than most are cut out at once.
func (d *debris) add(id core.ExtentID, timer bool, bytes, most int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.fresh == nil {
		d.mu.fresh = make(map[core.ExtentID]bool)
	}
	if len(d.mu.fresh) < maxDebris {
		d.mu.fresh[id] = timer
		d.mu.bytes += bytes
	}
	if d.mu.bytes > most {
		notify(d.many)
	}
}

// turn makes what is fresh ripe, as far as there is room.
func (d *debris) turn() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.ripe) == 0 {
		d.ripe, d.mu.fresh, d.mu.bytes = d.mu.fresh, nil, 0
	}
}

// debrisRun is a range of ids of which no extent is here.
type debrisRun struct {
	ids    []core.ExtentID
	timer  bool
	before core.ExtentID // the last one before that is here; zero: none
}

// span begins behind the extent before: to cut there, a block of that is read, and none of the debris, which may be
// damaged.
func (r *debrisRun) span(prefix byte) pebble.KeyRange {
	s := pebble.KeyRange{Start: extentKey(prefix, r.ids[0]), End: afterExtent(prefix, r.ids[len(r.ids)-1])}
	if !r.before.IsZero() {
		s.Start = afterExtent(prefix, r.before)
	}
	return s
}

func compareIDs(a, b core.ExtentID) int { return bytes.Compare(a.ID[:], b.ID[:]) }

// debrisRuns are the longest runs of removed ids with no extent between them. Both lists are sorted. An id of an extent
// that is back is in none.
func debrisRuns(gone map[core.ExtentID]bool, here []core.ExtentID) (runs []debrisRun) {
	open := false
	var before core.ExtentID
	for _, id := range slices.SortedFunc(maps.Keys(gone), compareIDs) {
		for ; len(here) > 0 && compareIDs(here[0], id) < 0; here = here[1:] {
			open, before = false, here[0]
		}
		if len(here) > 0 && here[0] == id {
			open = false
			continue
		}
		if !open {
			runs = append(runs, debrisRun{before: before})
			open = true
		}
		r := &runs[len(runs)-1]
		r.ids, r.timer = append(r.ids, id), r.timer || gone[id]
	}
	return runs
}

// keepSweeping cuts debris out until the log closes.
func (e *Engine) keepSweeping() {
	tick := time.NewTicker(sweepOften)
	defer tick.Stop()
	for waited := time.Duration(0); ; {
		select {
		case <-e.stop:
			return
		case <-e.failed:
			return
		case <-e.debris.many:
			e.debris.turn()
			for len(e.debris.ripe) > 0 && !isClosed(e.stop) && e.sweepRipe() {
			}
		case <-tick.C:
			if waited += sweepOften; waited < sweepEvery && !e.space.fills() {
				continue
			}
			waited = 0
			e.sweepRipe()
			e.debris.turn()
		}
	}
}

// sweepRipe cuts ripe debris out; false when it did not.
func (e *Engine) sweepRipe() bool {
	if len(e.debris.ripe) == 0 || e.refusing() != nil {
		return false
	}
	if err := e.sweep(); err != nil {
		if e.refusing() == nil {
			e.log.Error("the records of small removed extents cannot be cut out: they keep their space until their tables are compacted", "err", err)
		}
		return false
	}
	return true
}

// sweep cuts ripe debris out, for sweepLong. Meanwhile no extent with an id up to the last one comes here: it would be
// cut, too. Steps that were refused for that go first.
func (e *Engine) sweep() error {
	done, err := e.reading() // keeps the database open
	if err != nil {
		return err
	}
	defer done()
	for e.debris.refused.Load() > 0 {
		if !e.pause(time.Millisecond) {
			return nil
		}
	}
	here := e.beginSweep(slices.MaxFunc(slices.Collect(maps.Keys(e.debris.ripe)), compareIDs))
	defer e.endSweep()
	slices.SortFunc(here, compareIDs)
	began := time.Now()
	for i, r := range debrisRuns(e.debris.ripe, here) {
		if i == sweepMost || i > 0 && time.Since(began) > sweepLong {
			return nil
		}
		err := e.cutRun(r)
		if isShortage(err) { // a later turn tries it again
			return err
		}
		for _, id := range r.ids {
			delete(e.debris.ripe, id)
		}
		if err != nil {
			return err
		}
	}
	clear(e.debris.ripe) // those that are back
	return nil
}

// cutRun cuts the records of a run of removed extents out.
func (e *Engine) cutRun(r debrisRun) error {
	for _, prefix := range contents(r.timer) {
		if err := e.guarded(func() error { return e.cutOut(r.span(prefix)) }); err != nil {
			return err
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
