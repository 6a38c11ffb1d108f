package inputhost

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/skew"
	"github.com/columbamq/columba/membership/clocks"
)

// clock corrects the host's clock while that is known to be wrong. Safe for concurrent use.
type clock struct {
	wrong atomic.Pointer[correction] // nil: the clock is not known to be wrong
}

// correction is the time of the cluster when the clocks were compared.
type correction struct {
	right time.Time // or later by as much as the comparison may be wrong: no message comes before its time
	at    time.Time // for the time that has passed since; its wall clock says nothing
}

// stamp answers which time messages get that come now, which is t by the host's clock. If that is wrong, it is the time
// of the cluster at the last comparison and what has passed since by the monotonic clock: so it stays right when
// somebody sets the host's clock.
func (c *clock) stamp(t time.Time) time.Time {
	if x := c.wrong.Load(); x != nil {
		return x.right.Add(time.Since(x.at))
	}
	return t
}

// judge takes over a verdict; now is by the host's clock. changed: the clock has become wrong, or right again.
func (c *clock) judge(v skew.Verdict, now time.Time) (changed bool) {
	var x *correction
	if v.State == skew.Wrong {
		x = &correction{right: now.Add(v.Within - v.Off), at: time.Now()}
	}
	return (c.wrong.Swap(x) == nil) != (x == nil)
}

// watchClock compares the host's clock with those of all others until ctx ends. A message gets its time for good, so
// the host does not leave the judgement to the controller, which may be away.
func (h *Host) watchClock(ctx context.Context) {
	reader := clocks.New(h.deps.Peers.Dial, h.deps.now)
	defer reader.Close()
	self := h.deps.Members.Self().ID
	var verdict skew.Verdict
	reader.Watch(ctx, h.deps.Members, func(readings map[core.HostID]skew.Reading, silent int) {
		verdict = skew.Judge(readings, silent, map[core.HostID]skew.Verdict{self: verdict})[self]
		if h.clock.judge(verdict, h.deps.now()) {
			h.clockChanged(verdict)
		}
	})
}

// clockChanged has all extents replaced that have messages: times never go back within an extent, so those of a clock
// that was ahead would stay.
func (h *Host) clockChanged(v skew.Verdict) {
	off := v.Off.Round(time.Second)
	if v.State == skew.Wrong {
		h.log.Error("the clock of this host is wrong: messages get the time of the other hosts instead; set the clock, and look after its time service", "ahead", off)
	} else {
		h.log.Info("the clock of this host is right again", "ahead", off)
	}
	for _, q := range h.list() {
		q.mu.Lock()
		for _, s := range q.mu.open.slots {
			s.replace = s.replace || s.w.Bytes() > 0
		}
		q.mu.Unlock()
	}
}
