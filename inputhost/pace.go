package inputhost

import (
	"context"
	"maps"
	"math"
	"time"

	"github.com/columbamq/columba/core"
)

const (
	// pacePause is the first pause; each further failure makes it four times as long, up to paceMost. Publishers wait
	// longer than that (unsentMost), so a pause refuses nothing by itself.
	pacePause = 500 * time.Millisecond
	paceMost  = 4 * time.Second
	// paceApart is the time after a failure in which the next one has a pause, whichever store it is by.
	paceApart = time.Second
	// paceForgive is the time in which one failure is forgotten.
	paceForgive = 5 * time.Second
	// paceLevels is the level of the longest pause, and the highest one: a longer storm would otherwise delay the second
	// extent for longer.
	paceLevels = 3
	// paceCalmAfter is the longest time from the last failure until a queue is calm.
	paceCalmAfter = paceLevels * paceForgive
)

// pace holds a queue back whose extents fail one after another, as they do when connections to stores are reset all the
// time: each new extent costs rows, files and a seal, and would not live long either. A store that is lost costs no
// pause, and one that was started anew may be lost again. It has no clock; its queue guards it. The zero value is
// ready.
type pace struct {
	level  float64   // failures that have a pause and are not forgotten, at the last one of them
	paused time.Time // the last failure that has a pause
	last   time.Time // the last failure
	stores map[core.HostID]lastFailure
}

// lastFailure is that of a store.
type lastFailure struct {
	run core.RunID
	at  time.Time
}

// failed notes that a run of a store ended an extent that was begun at a time. Extents that were there together fail
// together: that is one failure.
func (p *pace) failed(store core.HostID, run core.RunID, begun, now time.Time) {
	maps.DeleteFunc(p.stores, func(_ core.HostID, f lastFailure) bool { return now.Sub(f.at) >= paceCalmAfter })
	if p.stores == nil {
		p.stores = make(map[core.HostID]lastFailure)
	}
	was, again := p.stores[store]
	again = again && was.run == run
	p.stores[store] = lastFailure{run: run, at: now}
	if begun.Before(p.last) {
		return
	}
	if again || now.Sub(p.last) < paceApart {
		p.level, p.paused = min(p.levelAt(now)+1, paceLevels), now
	}
	p.last = now
}

func (p *pace) levelAt(now time.Time) float64 {
	return max(0, p.level-float64(now.Sub(p.paused))/float64(paceForgive))
}

// wait is how long no extent is to be opened.
func (p *pace) wait(now time.Time) time.Duration {
	n := int(math.Ceil(p.level - 0.01)) // a hundredth is forgiven at once: it may be a rounding error
	if n <= 0 {
		return 0
	}
	pause := paceMost
	if n <= 2 { // longer ones are above the most
		pause = min(pacePause<<(2*(n-1)), paceMost)
	}
	return max(0, pause-now.Sub(p.paused))
}

// calm: the queue may have more extents than the one it needs.
func (p *pace) calm(now time.Time) bool { return p.levelAt(now) < 0.01 }

// rest waits before the next extent is opened; false: the host is stopping.
func (q *queue) rest(ctx context.Context, pause time.Duration) bool {
	q.h.remote.Warn("extents of a queue fail one after another; the next one is opened later", "queue", q.path, "pause", pause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		q.abandon()
		return false
	}
}

// countsAgainstPace reports whether the end of an extent is a failure of a store. A fence is somebody's decision. A
// store that is full is avoided, and publishers are to hear soon that all are. An extent that could not be opened,
// which names no store, delays the next try by itself, and has its stores avoided.
func countsAgainstPace(store core.HostID, cause error) bool {
	code := core.CodeOf(cause)
	return store != "" && cause != nil && code != core.CodeFenced && code != core.CodeNoSpace
}
