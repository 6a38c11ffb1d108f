package inputhost

import (
	"context"
	"math"
	"time"

	"github.com/columbamq/columba/core"
)

const (
	// paceFree is how many failures in a row have no pause: a store that was lost costs none.
	paceFree = 1
	// pacePause is the first pause; each further failure makes it four times as long, up to paceMost. Publishers wait longer than that
	// (unsentMost), so a pause refuses nothing by itself.
	pacePause = 500 * time.Millisecond
	paceMost  = 4 * time.Second
	// paceForgive is the time in which one failure is forgotten.
	paceForgive = 5 * time.Second
	// paceLevels is the level of the longest pause, and the highest one: a longer storm would otherwise delay the second extent for longer.
	paceLevels = paceFree + 3
	// paceCalmAfter is the longest time from the last failure until a queue is calm.
	paceCalmAfter = (paceLevels - paceFree) * paceForgive
)

// pace holds a queue back whose extents fail one after another, as they do when connections to stores are reset all the time: each new extent
// costs rows, files and a seal, and would not live long either. It has no clock; its queue guards it.
type pace struct {
	level float64   // failures that are not forgotten, at the last one
	last  time.Time // the last failure
}

// failed notes the failure of an extent that was begun at a time. Extents that were there together fail together: that is one failure.
func (p *pace) failed(begun, now time.Time) {
	if begun.Before(p.last) {
		return
	}
	p.level, p.last = min(p.levelAt(now)+1, paceLevels), now
}

func (p *pace) levelAt(now time.Time) float64 {
	return max(0, p.level-float64(now.Sub(p.last))/float64(paceForgive))
}

// wait is how long no extent is to be opened.
func (p *pace) wait(now time.Time) time.Duration {
	n := int(math.Ceil(p.level-0.01)) - paceFree // a hundredth is forgiven at once: it may be a rounding error
	if n <= 0 {
		return 0
	}
	pause := paceMost
	if n <= 2 { // longer ones are above the most
		pause = min(pacePause<<(2*(n-1)), paceMost)
	}
	return max(0, pause-now.Sub(p.last))
}

// calm: the queue may have more extents than the one it needs.
func (p *pace) calm(now time.Time) bool { return p.levelAt(now) < paceFree+0.01 }

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

// countsAgainstPace reports whether the end of an extent is a failure. A fence is somebody's decision.
func countsAgainstPace(cause error) bool {
	return cause != nil && core.CodeOf(cause) != core.CodeFenced
}
