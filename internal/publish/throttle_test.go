package publish

import (
	"math"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestSession_ThrottledForLong has hosts ask for pauses of any length: the publisher does not wait for longer than
// maxThrottle, for the pause holds back what it would send to other hosts, too.
func TestSession_ThrottledForLong(t *testing.T) {
	for _, d := range []time.Duration{math.MinInt64, -1, 0, time.Second, 100 * 365 * 24 * time.Hour, math.MaxInt64} {
		p := New(Config{})
		s := &session{p: p}
		s.throttled(d)
		least, most := int64(min(max(d, 0), time.Second)), p.now()+int64(maxThrottle)
		if p.mu.pausedUntil < least || p.mu.pausedUntil > most {
			t.Errorf("a pause of %s: the publisher waits until %s", d, time.Duration(p.mu.pausedUntil))
		}
	}
}

// TestLack_KeepsAThrottle: a refusal for want of a majority shortens the publisher's own pauses, and not one that a
// host has asked for.
func TestLack_KeepsAThrottle(t *testing.T) {
	lacks := core.Errorf(core.CodeNoMajority, "no majority answers")
	for _, throttled := range []time.Duration{0, time.Second, 20 * time.Second} {
		p := New(Config{})
		now := p.now()
		p.mu.pausedUntil = now + int64(time.Minute)
		p.throttle(&core.Error{Code: core.CodeThrottled, RetryAfter: throttled})
		asked := p.mu.throttled
		p.lackedLocked(lacks, now)
		if want := max(now+int64(lackFor), asked); p.mu.pausedUntil != want {
			t.Errorf("throttled for %s: the pause is over after %s, want %s", throttled, time.Duration(p.mu.pausedUntil-now), time.Duration(want-now))
		}
	}
}

// TestPublisher_TimeoutWithoutEnd: the longest timeout is no past deadline.
func TestPublisher_TimeoutWithoutEnd(t *testing.T) {
	const now = int64(time.Hour)
	for name, until := range map[string]int64{
		"of the publisher": New(Config{Timeout: math.MaxInt64}).deadline(t.Context(), now, 0),
		"of a record":      New(Config{}).deadline(t.Context(), now, math.MaxInt64),
	} {
		if until <= now {
			t.Errorf("%s: it is tried until %s, and now is %s", name, time.Duration(until), time.Duration(now))
		}
	}
}
