package controller

import (
	"math/rand/v2"
	"time"

	"github.com/columbamq/columba/core"
)

// wakeMissed ends the rest of all queues, at times that chance spreads, when a process has ended that may have had to
// tell of a change: a controller or a frontend, be it in the membership or by its lease alone.
func (h *Host) wakeMissed(now time.Time) {
	if !h.tellers.ended(h.tellingRuns(), h.others.since()) {
		return
	}
	for _, q := range h.shares.queues {
		if q.next.Sub(now) > missedEvery {
			q.next = now.Add(rand.N(missedEvery))
		}
	}
}

// tellingRuns are the other processes in the membership that tell of changes.
func (h *Host) tellingRuns() map[core.RunID]struct{} {
	self, out := h.deps.Members.Self(), make(map[core.RunID]struct{})
	for _, role := range []string{"controller", "frontend"} {
		for _, m := range h.deps.Members.Hosts(role) {
			if m.Run != self.Run {
				out[m.Run] = struct{}{}
			}
		}
	}
	return out
}

// tellers are the processes that told of changes at the round before. One goroutine uses it.
type tellers struct {
	runs   map[core.RunID]struct{}
	others time.Time // since when the other controllers were the same
}

// ended takes in those of now, and reports whether one of before is not among them.
func (x *tellers) ended(runs map[core.RunID]struct{}, others time.Time) (some bool) {
	some = !others.Equal(x.others)
	for run := range x.runs {
		_, there := runs[run]
		some = some || !there
	}
	x.runs, x.others = runs, others
	return some
}
