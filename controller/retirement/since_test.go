package retirement

import (
	"testing"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
)

// TestSince_MarkedAgainElsewhere: another controller undid the mark, and made one of its own, while this one did not
// look. The second look waits from then on.
func TestSince_MarkedAgainElsewhere(t *testing.T) {
	r, now := New(Config{}, nil), time.Unix(1, 0)
	e := catalog.Extent{State: core.ExtentRetiring, Version: 2}
	r.since(e, now)
	if got := r.since(e, now.Add(markedFor)); got != markedFor {
		t.Errorf("it is marked for %s, want %s", got, markedFor)
	}
	e.Version = 4
	if got := r.since(e, now.Add(markedFor)); got != 0 {
		t.Errorf("another mark is %s old, want that it is new", got)
	}
}
