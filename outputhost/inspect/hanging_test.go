package inspect

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// TestReadRange_BehindAStoreThatHangs: the first store hangs, and another one answers in the time that the caller has.
func TestReadRange_BehindAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.serve(map[core.HostID]*heldTo{"a": {hangs: true}, "b": {last: 3}, "c": {last: 3}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stores := []membership.Host{{ID: "a", Address: "a:1"}, {ID: "b", Address: "b:1"}, {ID: "c", Address: "c:1"}}
		batches, err := New(Config{}, h).readRange(ctx, stores, core.ExtentID{ID: core.ID{1}}, 1, 3, peekBytes)
		if err != nil || len(batches) == 0 {
			t.Errorf("%d bytes, %v", len(batches), err)
		}
	})
}
