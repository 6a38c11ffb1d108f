package extentlog

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

func TestDebrisRuns(t *testing.T) {
	id := func(n byte) core.ExtentID { return core.ExtentID{ID: core.ID{n}} }
	gone := map[core.ExtentID]bool{id(1): false, id(2): true, id(4): false, id(6): false, id(7): false, id(9): false}
	runs := debrisRuns(gone, []core.ExtentID{id(3), id(7), id(8)}) // 7 is back
	var got [][]core.ExtentID
	for _, r := range runs {
		got = append(got, r.ids)
	}
	want := [][]core.ExtentID{{id(1), id(2)}, {id(4), id(6)}, {id(9)}}
	if !slices.EqualFunc(got, want, slices.Equal[[]core.ExtentID]) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := []core.ExtentID{runs[0].before, runs[1].before, runs[2].before}; !slices.Equal(got, []core.ExtentID{{}, id(3), id(8)}) {
		t.Errorf("the ids before are %v", got)
	}
	if !runs[0].timer || runs[1].timer {
		t.Error("the first run, and no other, has an index of timers")
	}
}

// TestDebris_IsCutOut: small extents give their space back within seconds, and those between them stay whole. One that
// comes back at once stays, too.
func TestDebris_IsCutOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := turning(t, vfs.NewMem())
		var gone, here []core.Extent
		for i := range 60 {
			x, h := newExtent(), wire.BatchHeader{}
			must(t, e.Open(x))
			for range 3 {
				appendBatch(t, e, x, nextBatch(t, &h, 4<<10))
			}
			if i%10 == 9 {
				here = append(here, x)
			} else {
				gone = append(gone, x)
			}
		}
		drainAll(t, e)
		before, err := e.db.EstimateDiskUsage([]byte{prefixBatch}, []byte{prefixBatch + 1})
		must(t, err)
		for _, x := range gone {
			must(t, removeTold(e, x, 1))
		}
		back, h := gone[20], wire.BatchHeader{}
		_, err = e.Fence(back, 2)
		must(t, err)
		for range 3 {
			_, err := e.Copy(back.ID, nextBatch(t, &h, 5<<10))
			must(t, err)
		}
		drainAll(t, e)
		time.Sleep(6 * sweepEvery)
		for _, x := range append(here, back) {
			if v, err := e.Verify(t.Context(), x.ID); err != nil || !v.Sound {
				t.Errorf("extent %s: %+v, %v", x.ID, v, err)
			}
		}
		must(t, e.db.Flush())
		size, err := e.db.EstimateDiskUsage([]byte{prefixBatch}, []byte{prefixBatch + 1})
		must(t, err)
		if size > before/2 { // the sizes of what is left of tables are estimates
			t.Errorf("batches of %d extents of %d take %d bytes of %d", len(here)+1, len(here)+len(gone), size, before)
		}
	})
}
