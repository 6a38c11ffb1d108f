package inputhost

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/skew"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/clocks"
)

// due publishes a message with a delay, and answers by how much the stored time at which it is due differs from the
// delay.
func (r *harness) due(p *client, delay time.Duration) time.Duration {
	r.t.Helper()
	want := time.Now().Add(delay)
	body := p.sendFor(delay, time.Time{})
	p.flush()
	e, record := r.stored(r.where(body))
	if lane, _ := core.HorizonOf(delay.Milliseconds()); e.Horizon != core.HorizonAt(lane) {
		r.t.Errorf("a message with a delay of %s is in the timer extent of %s", delay, e.Horizon)
	}
	return time.UnixMilli(record.DeliverAt).Sub(want).Round(time.Second)
}

// TestClock_WrongOneIsCorrected: an input host whose clock is an hour wrong dates messages by the clocks of the others.
// When its clock is set right, it does so at once, before it has compared again.
func TestClock_WrongOneIsCorrected(t *testing.T) {
	for name, by := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, nil, func(r *harness) {
				p := r.publisher("p", path)
				check := func(when string, want time.Duration) {
					t.Helper()
					if off := r.due(p, 10*time.Minute); max(off-want, want-off) > time.Second {
						t.Errorf("%s: a delayed message is due %s late, want %s", when, off, want)
					}
				}
				p.send()
				sleep(time.Second)
				check("right", 0)
				r.ahead.Store(int64(by))
				sleep(clocks.Every + 2*time.Second)
				check("wrong", 0)
				p.send()
				p.flush()
				if at := r.lastAppend(); time.Until(at).Abs() > 2*time.Second {
					t.Errorf("a message is stored as published at %s, it is %s", at, time.Now())
				}
				r.ahead.Store(0)
				check("set, and not compared yet", 0)
				sleep(clocks.Every)
				check("right again", 0)
				r.all(p.n)
			})
		})
	}
}

// TestClock_CorrectedOneIsNotBehind: the clocks were compared by calls that took long. No message gets a time that is
// past, whatever the error.
func TestClock_CorrectedOneIsNotBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ahead, within = time.Hour, 500 * time.Millisecond
		for _, wrong := range []time.Duration{-within, 0, within} {
			var c clock
			now := time.Now()
			c.judge(skew.Verdict{Off: ahead + wrong, Within: within, State: skew.Wrong}, now.Add(ahead))
			time.Sleep(time.Minute)
			if off := time.Until(c.stamp(time.Now().Add(ahead))); off < 0 || off > 2*within {
				t.Errorf("compared with an error of %s: a message gets a time that is %s ahead", wrong, off)
			}
		}
	})
}

// TestClock_OfTwoHosts: with one other host nobody can tell whose clock is wrong, and the host goes by its own.
func TestClock_OfTwoHosts(t *testing.T) {
	bubble(t, 1, nil, func(r *harness) {
		r.without("ctl")
		r.ahead.Store(int64(time.Hour))
		sleep(2 * clocks.Every)
		if at := r.host.clock.stamp(r.host.deps.now()); time.Until(at) != time.Hour {
			t.Errorf("the host takes it for %s, it is %s", at, time.Now())
		}
	})
}

// lastAppend is the time of the batch that a store got last.
func (r *harness) lastAppend() (last time.Time) {
	for _, s := range r.stores {
		s.set(func() { last = s.appended })
	}
	return last
}

// without takes a host out of the membership.
func (r *harness) without(id core.HostID) {
	r.t.Helper()
	var rest []membership.Host
	for _, m := range r.members.Hosts("") {
		if m.ID != id {
			rest = append(rest, m)
		}
	}
	if err := r.members.Set(rest); err != nil {
		r.t.Fatal(err)
	}
}
