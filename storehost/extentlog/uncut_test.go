package extentlog

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
)

// TestRemove_IsCutOutLater: the range of a removed extent cannot be cut out of a damaged table. The extent does not
// come back to this store before: its records would lie above the damaged ones. The store tries again, ever more
// rarely, until it can.
func TestRemove_IsCutOutLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, with := failing(errorfs.OpOpen)
		ids := fillSealed(t, disk, 3)
		e := newEngine(t, "store", disk)
		gone, err := e.State(ids[1])
		must(t, err)
		must(t, e.Seal(ids[1], gone.Last, gone.Checksum, 1))
		e.quarantine(e.extent(ids[1]), "it is damaged", false)
		damaged := errors.New("it is damaged")
		with.Store(&damaged)
		if err := e.Remove(ids[1], 1); core.CodeOf(err) != core.CodeInternal {
			t.Fatalf("remove: %v, want to hear that the space stays taken", err)
		}
		refused := func(when string) {
			t.Helper()
			if _, err := e.Fence(gone.Extent, 2); core.CodeOf(err) != core.CodeUnavailable || !strings.Contains(err.Error(), "replace") {
				t.Errorf("the extent comes back %s: %v, want %q and to hear why", when, err, core.CodeUnavailable)
			}
		}
		refused("at once")
		must(t, e.Remove(ids[1], 1))
		time.Sleep(time.Hour)
		refused("after an hour in which the table was damaged")
		if n := e.Vitals().UncutExtents; n != 1 {
			t.Errorf("the vitals count %d extents that get no new copy here, want 1", n)
		}
		with.Store(nil)
		time.Sleep(2 * cutAgainMost)
		synctest.Wait()
		if _, err := e.Fence(gone.Extent, 2); err != nil {
			t.Errorf("after it was cut out: %v", err)
		}
		if n := e.Vitals().UncutExtents; n != 0 {
			t.Errorf("the vitals count %d extents after it was cut out", n)
		}
		for _, id := range []core.ExtentID{ids[0], ids[2]} {
			if err := readAll(e, id); err != nil {
				t.Errorf("an extent beside it: %v", err)
			}
		}
		must(t, e.Close())
	})
}
