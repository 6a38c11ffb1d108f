package publish

import (
	"math"
	"testing"
	"time"
)

// TestSession_ThrottledForLong has hosts ask for pauses of any length: the publisher does not wait for longer than maxThrottle, for the pause holds back
// what it would send to other hosts, too.
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
