package quota

import (
	"testing"
	"time"
)

// TestBucket_ClockThatGoesBack: somebody sets the clock of a host back by an hour. Its publishers must not wait for
// that hour: with the next lease, within a second, the debt counts by the new clock.
func TestBucket_ClockThatGoesBack(t *testing.T) {
	var b Bucket
	b.Set(100, start)
	b.Take(50, start) // half a second
	back := start.Add(-time.Hour)
	b.Set(100, back)
	if wait := b.Wait(back); wait > time.Second {
		t.Errorf("it stays closed for %s, half a second is owed", wait)
	}
	b.Take(200, back)
	b.Set(100, back.Add(time.Second))
	if wait := b.Wait(back.Add(time.Second)); wait < 400*time.Millisecond || wait > time.Second {
		t.Errorf("it stays closed for %s, and 1.5 s are owed", wait)
	}
}
