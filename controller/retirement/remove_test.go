package retirement

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// clerk is an owner whose stores have deleted their replicas.
type clerk struct{ forgotten []core.ExtentID }

func (*clerk) Look(_ core.ExtentID, f func(context.Context)) bool {
	f(context.Background())
	return true
}
func (*clerk) Seal(context.Context, core.Extent, string) error   { return nil }
func (*clerk) Delete(context.Context, metadata.SealRecord) error { return nil }
func (*clerk) Left(core.Extent, core.Home)                       {}
func (c *clerk) Forget(e core.Extent, _ core.Home)               { c.forgotten = append(c.forgotten, e.ID) }

// TestRemove_ClocksThatDiffer: the rows of a retired extent go, by whatever clock they were written, and whatever is
// written of it later is left to whoever finds that.
func TestRemove_ClocksThatDiffer(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"the writer's clock is ahead": time.Hour, "it is behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			meta, now := memory.New(), time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
			defer meta.Close()
			ctx, written := t.Context(), now.Add(ahead)
			e := core.Extent{ID: core.ExtentID{ID: core.NewID(written)}, Queue: core.QueueID{ID: core.NewID(written)}}
			record := metadata.ExtentRecord{Extent: e, Created: written}
			keys := map[metadata.Key]metadata.Table{
				metadata.ExtentKey(e.Queue, e.ID):         metadata.Extents,
				metadata.HintKey(metadata.HintLive, e.ID): metadata.Work,
				metadata.HintKey(metadata.HintOpen, e.ID): metadata.Work,
			}
			write := func(at time.Time) {
				for k, table := range keys {
					if err := metadata.Write(ctx, meta, table, k, record, at, 0, metadata.One); err != nil {
						t.Fatal(err)
					}
				}
			}
			left := func() (n int) {
				for k, table := range keys {
					if _, err := meta.Get(ctx, table, k, metadata.Serial); err == nil {
						n++
					}
				}
				return n
			}
			owner := &clerk{}
			r := New(Config{Responsible: all, Meta: meta, Extents: catalog.NewExtents(), Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)}, owner)
			write(written)
			for range 2 { // another controller removes it, too
				if err := r.remove(ctx, catalog.Extent{ExtentRecord: record}, metadata.SealRecord{Extent: e, State: core.ExtentRetired}); err != nil {
					t.Fatal(err)
				}
			}
			if n := left(); n > 0 || len(owner.forgotten) != 2 {
				t.Errorf("%d rows are left, forgotten %d times", n, len(owner.forgotten))
			}
			write(written.Add(time.Minute))
			if n := left(); n != len(keys) {
				t.Errorf("%d rows are found that were written since, want %d", n, len(keys))
			}
		})
	}
}
