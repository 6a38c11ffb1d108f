package metadata

import (
	"testing"
	"time"
)

// A clock that stands still or goes back gives no version twice.
func TestVersions_NeverTwice(t *testing.T) {
	var v Versions
	now := time.UnixMicro(1000)
	last := Version(0)
	for i, at := range []time.Time{now, now, now.Add(time.Second), now, time.Time{}} {
		first := v.First(at)
		if first <= last {
			t.Errorf("insertion %d begins at version %d, the one before was deleted at %d", i, first, last)
		}
		last = first + 10 // the row is updated
		v.Deleted(last)
	}
	if got := v.First(time.UnixMicro(1_790_000_000_000_000)); got != 1_790_000_000_000_000 {
		t.Errorf("the first version is %d, want the time in microseconds", got)
	}
}
