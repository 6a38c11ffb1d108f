package inputhost

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestHost_SparseTimersShareExtents publishes a message for next year every five minutes. An extent for each of them
// would be there, with its rows and its read streams, for a year.
func TestHost_SparseTimersShareExtents(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		p := r.publisher("p", path)
		seen := make(map[core.ExtentID]bool)
		const n = 12
		for range n {
			body := p.sendFor(300*24*time.Hour, time.Time{})
			p.flush()
			seen[r.where(body).Extent] = true
			take(5 * time.Minute)
		}
		if len(seen) > 2 {
			t.Errorf("%d messages for next year are in %d extents", n, len(seen))
		}
	})
}
