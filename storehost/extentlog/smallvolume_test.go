package extentlog

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// TestSmallVolume_Turns: ten times what a volume holds goes through it, a sixteenth in a second, in extents of 32 KiB
// to 1 MiB. A sixteenth is alive at a time, and one extent for ever. Nothing is refused, and in the end the space is
// back.
func TestSmallVolume_Turns(t *testing.T) {
	for _, total := range []int64{8 << 20, 16 << 20} {
		t.Run(fmt.Sprintf("%d MiB", total>>20), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := newQuota(total)
				e := newEngine(t, "store", disk)
				pinned, ph := newExtent(), wire.BatchHeader{}
				must(t, e.Open(pinned))
				for range 4 {
					must(t, appendWithin(t, e, pinned, nextBatch(t, &ph, 30<<10), 5*time.Second))
				}
				type live struct {
					x     core.Extent
					bytes int64
				}
				var alive []live
				bytes := int64(0)
				through := 10 * total
				for sum, i := int64(0), 0; sum < through; i++ {
					x, h := newExtent(), wire.BatchHeader{}
					if err := e.Open(x); err != nil {
						t.Fatalf("open after %d MiB: %v", sum>>20, err)
					}
					size, batch := int64(32<<10)<<(i%6), 16<<10<<(i%4) // up to 1 MiB
					for at := int64(0); at < size; at += int64(batch) {
						if err := appendWithin(t, e, x, nextBatch(t, &h, batch), 5*time.Second); err != nil {
							t.Fatalf("after %d MiB: %v", sum>>20, err)
						}
					}
					sum, bytes = sum+size, bytes+size
					alive = append(alive, live{x, size})
					for bytes > total/16 {
						must(t, removeTold(e, alive[0].x, 1))
						bytes -= alive[0].bytes
						alive = alive[1:]
					}
					time.Sleep(time.Duration(size * int64(time.Second) / (total / 16)))
				}
				for _, l := range alive {
					must(t, removeTold(e, l.x, 1))
				}
				time.Sleep(time.Minute)
				// The log with a segment for a large batch, a manifest and the one before it, and tables of rows.
				f := e.space.fill()
				most := e.journal.keeper.most + e.journal.ring.Largest() + 2*int64(f.memtable()) + int64(f.tables())*4<<10
				if disk.used > most {
					t.Errorf("a minute after all was removed %d KiB are used, and at most %d", disk.used>>10, most>>10)
				}
				t.Logf("%d MiB at most, %d KiB in the end, ring %d KiB", disk.most>>20, disk.used>>10, e.journal.keeper.most>>10)
				if v, err := e.Verify(t.Context(), pinned.ID); err != nil || !v.Sound {
					t.Errorf("the one that stayed: %+v, %v", v, err)
				}
			})
		})
	}
}
