package controller

import (
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

const (
	// namedFor is for how long an extent is read again after its change was named: a write at One, or one without an
	// answer, may come later. An extent without a create row counts after the same time, see load.
	namedFor = unopenedAfter
	// mostFollowed bounds the extents that are read again.
	mostFollowed = 2 * mostChanges
	// fullRest is how many times as long as a full reading took the next one waits, every at most, unless it is asked for.
	// After one that failed it waits as long as that took; one that is asked for waits reloadOften at most.
	fullRest = 4
)

// namedExtent is a changed extent that is read again until a time.
type namedExtent struct {
	queue core.QueueID // zero: not known
	until time.Time
}

// readings decide which rows one of several controllers reads again, and when (docs/adr/0070). They have no clock and
// do no I/O. All times are of a monotonic clock.
//
// Every round asks the other controllers which extents they have changed. A calm round reads these extents, and after
// reloadEvery those that are not known. Any other round reads all rows. Full readings that find nothing become seldom:
// every is reloadEvery, and doubles up to reloadSeldom.
type readings struct {
	calmAfter time.Duration
	most      int // extents that are named
	named     map[core.ExtentID]namedExtent
	asked     bool          // all is to be read, because this controller became responsible for queues that others acted for
	every     time.Duration // how long after a full reading the next one is due, though nothing asks for it
	since     time.Time     // when the full reading began that every was last set by
	fresh     time.Time     // when the last reading began of all rows, or of all that are not known
	full      time.Time     // when the last full reading began; zero: there was none, or it failed, or extents that were named could not be read
	missed    time.Time     // when a change may have been missed last
	rests     time.Time     // no full reading begins before, unless it is asked for
	again     time.Time     // the same for one that is asked for, after one that failed
}

func newReadings(calmAfter time.Duration, most int) *readings {
	return &readings{calmAfter: calmAfter, most: most, every: reloadEvery, named: make(map[core.ExtentID]namedExtent)}
}

// answered is what the other controllers said in a round.
type answered struct {
	same    time.Time // since when they are the same
	all     bool      // there are some, and all of them have answered
	missed  bool      // one cannot name all that it changed
	changed []changed
	others  int // of changed: how many others have changed
}

// take takes in what others said. Full readings find missed changes, until these can no longer come late.
func (r *readings) take(a answered, now time.Time) {
	for _, x := range a.changed {
		if n := r.named[x.id]; x.queue.IsZero() {
			x.queue = n.queue
		}
		r.named[x.id] = namedExtent{x.queue, now.Add(namedFor)}
	}
	if len(r.named) > r.most {
		clear(r.named)
		a.missed = true
	}
	if a.missed {
		r.missed = now
	}
}

// calm reports whether the extents that were named are all that others may have changed. lone says that there are none.
func (r *readings) calm(a answered, lone bool, now time.Time) bool {
	return !r.asked && (a.all || lone) && now.Sub(a.same) >= r.calmAfter && // nobody else has changed anything
		!r.full.IsZero() && now.Sub(r.full) < r.every &&
		(r.missed.IsZero() || r.full.Sub(r.missed) >= min(namedFor, r.calmAfter)) // less than namedFor in tests
}

// mayReadAll reports whether a full reading may begin: it takes a part of the time only.
func (r *readings) mayReadAll(now time.Time) bool {
	if r.asked {
		return !now.Before(r.again)
	}
	return !now.Before(r.rests)
}

// hasReadAll takes in how a full reading ended that began then, and how many extents it found to be other than known.
func (r *readings) hasReadAll(began, ended time.Time, found int, err error) {
	r.full, r.rests, r.again = time.Time{}, time.Time{}, time.Time{}
	switch {
	case err != nil || found > 0 || r.asked || r.since.IsZero():
		r.every, r.since = reloadEvery, began
	case began.Sub(r.since) > r.every-reloadOften: // rounds are so far apart
		r.every, r.since = min(2*r.every, reloadSeldom), began
	}
	rest := ended.Sub(began)
	if err == nil {
		r.full, r.fresh, r.asked = began, began, false
		r.forget(began)
		rest = min(fullRest*rest, reloadEvery) // what nobody names is known by then
	} else {
		r.again = ended.Add(max(loadAgain, min(rest, reloadOften)))
	}
	if rest > reloadOften {
		r.rests = ended.Add(rest)
	}
}

// newIsDue reports whether the extents that are not known are to be read.
func (r *readings) newIsDue(now time.Time) bool {
	return now.Sub(r.fresh) > reloadEvery-reloadOften // rounds are so far apart
}

// hasReadNew takes in how a reading ended of what was not known, which began then, and how many extents it found.
func (r *readings) hasReadNew(began time.Time, found int, err error) {
	if err != nil {
		return
	}
	if r.fresh = began; found > 0 {
		r.every, r.since = reloadEvery, began
	}
}

// hasReadNamed takes in how a reading of the extents that were named ended, which began then.
func (r *readings) hasReadNamed(began time.Time, err error) {
	if err != nil {
		r.full = time.Time{}
		return
	}
	r.forget(began)
}

// forget the extents that were read then, and had been read for long enough.
func (r *readings) forget(read time.Time) {
	for id, n := range r.named {
		if !read.Before(n.until) {
			delete(r.named, id)
		}
	}
}

// ids are the extents that are read again, the oldest first.
func (r *readings) ids() []core.ExtentID {
	out := make([]core.ExtentID, 0, len(r.named))
	for id := range r.named {
		out = append(out, id)
	}
	slices.SortFunc(out, func(a, b core.ExtentID) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return out
}
