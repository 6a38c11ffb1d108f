package retirement

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// TestRemove_SealRowsEnd: the seal row of a removed extent goes 90 days later. That of the head of a CP queue stays, as
// long as the head is the newest extent: whoever takes the next one asks it.
func TestRemove_SealRowsEnd(t *testing.T) {
	for name, test := range map[string]struct {
		chain uint64
		head  bool
		stays bool
	}{"of an AP queue": {}, "the head of a CP queue": {chain: 3, head: true, stays: true}, "not the head": {chain: 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				meta := memory.New()
				defer meta.Close()
				ctx := t.Context()
				e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: core.QueueID{ID: core.NewID(time.Now())}, Chain: test.chain}
				seal := metadata.SealRecord{Extent: e, State: core.ExtentRetired}
				if err := metadata.Create(ctx, meta, metadata.Seals, metadata.SealKey(e.ID), seal); err != nil {
					t.Fatal(err)
				}
				if test.chain > 0 {
					head := e
					if !test.head {
						head.ID = core.ExtentID{ID: core.NewID(time.Now())}
					}
					if err := metadata.Create(ctx, meta, metadata.Heads, metadata.HeadKey(e.Queue), metadata.HeadRecord{Queue: e.Queue, Extent: head}); err != nil {
						t.Fatal(err)
					}
				}
				r := New(Config{Responsible: all, Meta: meta, Extents: catalog.NewExtents(), Now: time.Now, Log: slog.New(slog.DiscardHandler)}, &clerk{})
				there := func() bool {
					_, err := meta.Get(ctx, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
					if err != nil && core.CodeOf(err) != core.CodeNotFound {
						t.Fatal(err)
					}
					return err == nil
				}
				for range 2 { // the second time the hint was not removed
					if err := r.remove(ctx, catalog.Extent{ExtentRecord: metadata.ExtentRecord{Extent: e}}, seal); err != nil {
						t.Fatal(err)
					}
					time.Sleep(metadata.SealRowLife - time.Hour)
					if !there() {
						t.Fatal("the seal row is gone too early")
					}
				}
				time.Sleep(2 * time.Hour)
				if there() != test.stays {
					t.Errorf("90 days later the seal row is there: %v, want %v", there(), test.stays)
				}
				if err := r.remove(ctx, catalog.Extent{ExtentRecord: metadata.ExtentRecord{Extent: e}}, seal); err != nil {
					t.Errorf("once more: %v", err)
				}
			})
		})
	}
}

// doomedRows is metadata where no create row can be removed.
type doomedRows struct{ metadata.Store }

func (m *doomedRows) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	if t == metadata.Extents {
		return core.Errorf(core.CodeUnavailable, "away")
	}
	return m.Store.Remove(ctx, t, k, at, c)
}

// TestRemove_TheSealRowOutlivesTheCreateRow: an extent whose create row is not removed yet keeps its seal row.
func TestRemove_TheSealRowOutlivesTheCreateRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := &doomedRows{Store: memory.New()}
		defer meta.Close()
		ctx := t.Context()
		e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: core.QueueID{ID: core.NewID(time.Now())}}
		seal := metadata.SealRecord{Extent: e, State: core.ExtentRetired}
		if err := metadata.Create(ctx, meta, metadata.Seals, metadata.SealKey(e.ID), seal); err != nil {
			t.Fatal(err)
		}
		record := metadata.ExtentRecord{Extent: e, Created: time.Now()}
		if err := metadata.Write(ctx, meta, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), record, time.Now(), 0, metadata.Quorum); err != nil {
			t.Fatal(err)
		}
		r := New(Config{Responsible: all, Meta: meta, Extents: catalog.NewExtents(), Now: time.Now, Log: slog.New(slog.DiscardHandler)}, &clerk{})
		if err := r.remove(ctx, catalog.Extent{ExtentRecord: record}, seal); err == nil {
			t.Fatal("removed, though the create row cannot be")
		}
		time.Sleep(2 * metadata.SealRowLife)
		if _, err := meta.Get(ctx, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial); err != nil {
			t.Errorf("the seal row: %v", err)
		}
	})
}
