package retirement

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/retirement/retention"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestCandidates_OfACalmQueue: what is known of a queue hides no extent that a look at all of them would find.
func TestCandidates_OfACalmQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := catalog.NewExtents()
		r := New(Config{Extents: x}, nil)
		q := settings{queue: core.QueueID{ID: core.NewID(time.Unix(1, 0))}, policy: retention.Policy{Consumed: time.Hour}}
		now := time.Unix(1_000_000, 0)
		var ids []core.ExtentID
		edit := func(f func(*catalog.Extent)) {
			if len(ids) > 0 {
				x.Change(rapid.SampledFrom(ids).Draw(t, "extent"), f)
			}
		}
		steps := map[string]func(*rapid.T){
			"open": func(*rapid.T) {
				e := core.Extent{ID: core.ExtentID{ID: core.NewID(now)}, Queue: q.queue}
				x.Put(catalog.Extent{ExtentRecord: metadata.ExtentRecord{Extent: e}, State: core.ExtentOpen})
				ids = append(ids, e.ID)
			},
			"seal":   func(*rapid.T) { edit(func(e *catalog.Extent) { e.State, e.Kept = core.ExtentSealed, now }) },
			"purge":  func(*rapid.T) { edit(func(e *catalog.Extent) { e.Home.Kind = core.HomePurged }) },
			"retire": func(*rapid.T) { edit(func(e *catalog.Extent) { e.State = core.ExtentRetiring }) },
			"remove": func(*rapid.T) {
				if len(ids) > 0 {
					x.Remove(rapid.SampledFrom(ids).Draw(t, "extent"))
				}
			},
			"wait":   func(*rapid.T) { now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "wait"))) },
			"policy": func(*rapid.T) { q.policy.Unconsumed = time.Duration(rapid.IntRange(0, 2).Draw(t, "hours")) * time.Hour },
			"": func(t *rapid.T) {
				due, marked, drained := r.candidates(q, now)
				clear(r.mu.calm)
				wantDue, wantMarked, wantDrained := r.candidates(q, now)
				if len(due) != len(wantDue) || len(marked) != len(wantMarked) || len(drained) != len(wantDrained) {
					t.Fatalf("%d due, %d marked and %d drained; a look at all finds %d, %d and %d",
						len(due), len(marked), len(drained), len(wantDue), len(wantMarked), len(wantDrained))
				}
			},
		}
		t.Repeat(steps)
	})
}
