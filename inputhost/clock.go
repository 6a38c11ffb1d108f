package inputhost

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/skew"
	"github.com/columbamq/columba/membership/clocks"
)

const (
	// compareEvery is how often the host compares its clock with those of the others; it also does when membership changes.
	compareEvery = 30 * time.Second
	// compareAgain is how soon it compares again while a host does not say its time: membership shows a host a moment before it serves.
	compareAgain = 5 * time.Second
)

// clock corrects the host's clock while that is known to be wrong. Safe for concurrent use.
type clock struct {
	wake  chan struct{}
	wrong atomic.Pointer[correction] // nil: the clock is not known to be wrong
}

// correction is the time of the cluster when the clocks were compared.
type correction struct {
	right time.Time
	at    time.Time // for the time that has passed since; its wall clock says nothing
}

func newClock() *clock { return &clock{wake: make(chan struct{}, 1)} }

// stamp answers which time messages get that come now, which is t by the host's clock. If that is wrong, it is the time of the cluster at the last comparison and
// what has passed since by the monotonic clock: so it stays right when somebody sets the host's clock.
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
		x = &correction{right: now.Add(-v.Off), at: time.Now()}
	}
	return (c.wrong.Swap(x) == nil) != (x == nil)
}

// watchClock compares the host's clock with those of all others until ctx ends. A message gets its time for good, so the host does not leave the judgement to
// the controller, which may be away.
func (h *Host) watchClock(ctx context.Context) {
	stop := h.deps.Members.Changed(func() {
		select {
		case h.clock.wake <- struct{}{}:
		default:
		}
	})
	defer stop()
	reader := clocks.New(h.deps.Peers.Dial, h.deps.now)
	defer reader.Close()
	next := time.NewTimer(compareEvery)
	defer next.Stop()
	self := h.deps.Members.Self().ID
	var verdict skew.Verdict
	for ctx.Err() == nil {
		pause := compareEvery
		readings, silent := reader.Read(ctx, h.deps.Members)
		if silent > 0 {
			pause = compareAgain
		}
		if ctx.Err() == nil {
			verdict = skew.Judge(readings, silent, map[core.HostID]skew.Verdict{self: verdict})[self]
			if h.clock.judge(verdict, h.deps.now()) {
				h.clockChanged(verdict)
			}
		}
		next.Reset(pause)
		select {
		case <-ctx.Done():
		case <-next.C:
		case <-h.clock.wake:
		}
	}
}

// clockChanged has all extents replaced that have messages: times never go back within an extent, so those of a clock that was ahead would stay.
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
