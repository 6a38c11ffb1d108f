package extentlog

import (
	"sync"
	"time"

	"github.com/columbamq/columba/core"
)

// Ranges that could not be cut out of the tables are tried again, each after twice the time of the time before.
const (
	cutAgainFirst = time.Minute
	cutAgainMost  = time.Hour
	cutsAtOnce    = 32 // in one turn, which comes once in cutAgainFirst
)

// uncut are removed extents whose records are still in tables that cannot be read. Their ids stay taken meanwhile: a
// new replica would lie above the damaged records, and its readers would meet them. A restart forgets them. Safe for
// concurrent use.
type uncut struct {
	mu struct {
		sync.Mutex
		waiting map[core.ExtentID]*cutAgain
	}
}

type cutAgain struct {
	x     *extent
	timer bool
	due   time.Time
	wait  time.Duration
}

// add has a range cut out later.
func (u *uncut) add(x *extent, timer bool, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.waiting == nil {
		u.mu.waiting = make(map[core.ExtentID]*cutAgain)
	}
	u.mu.waiting[x.id] = &cutAgain{x: x, timer: timer, due: now.Add(cutAgainFirst), wait: cutAgainFirst}
}

func (u *uncut) has(id core.ExtentID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.mu.waiting[id] != nil
}

func (u *uncut) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.mu.waiting)
}

// due are some of those that are to be tried now. Each is due again later.
func (u *uncut) due(now time.Time) (due []*cutAgain) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.mu.waiting {
		if len(due) < cutsAtOnce && !c.due.After(now) {
			c.wait = min(2*c.wait, cutAgainMost)
			c.due = now.Add(c.wait)
			due = append(due, c)
		}
	}
	return due
}

// remove ends the tries for an extent. left is how many there are.
func (u *uncut) remove(id core.ExtentID) (left int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.mu.waiting, id)
	return len(u.mu.waiting)
}

// keepCutting tries again until the log closes. It has a goroutine of its own, because a disk that hangs holds it up.
func (e *Engine) keepCutting() {
	for e.pause(cutAgainFirst) {
		due := e.uncut.due(time.Now())
		if len(due) == 0 {
			continue
		}
		var failed error
		for _, c := range due {
			if err := e.cutNow(c); err != nil {
				failed = err
			}
		}
		if failed != nil {
			e.log.Error("records of removed extents cannot be cut out of a damaged table: they keep their space, and their extents get no new copy on this store; replace its disk",
				"extents", len(due), "err", failed)
		}
	}
}

// cutNow is one more try.
func (e *Engine) cutNow(c *cutAgain) error {
	done, err := e.reading() // keeps the database open
	if err != nil {
		return err
	}
	defer done()
	if err := e.cutContents(c.x.id, c.timer); err != nil {
		return err
	}
	e.forget(c.x.id)
	e.log.Info("the records of a removed extent are cut out", "extent", c.x.id, "left", e.uncut.remove(c.x.id))
	return nil
}
