package retirement

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/retirement/retention"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestCandidates_OfACalmQueue: what was found of a queue hides no extent that is due or on its way out now.
func TestCandidates_OfACalmQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := catalog.NewExtents()
		r := New(Config{Extents: x}, nil)
		queue, other := core.QueueID{ID: core.NewID(time.Unix(1, 0))}, core.QueueID{ID: core.NewID(time.Unix(1, 0))}
		policy, now := retention.Policy{Consumed: time.Hour}, time.Unix(1_000_000, 0)
		waits := []time.Duration{0, time.Minute, time.Hour, time.Hour + 1, 3 * time.Hour}
		read := func() { r.mu.settings[queue] = settings{queue: queue, policy: policy, read: now} }
		read()
		var ids []core.ExtentID
		some := func() core.ExtentID { return rapid.SampledFrom(append(ids, core.ExtentID{})).Draw(t, "extent") }
		edit := func(f func(*catalog.Extent)) func(*rapid.T) { return func(*rapid.T) { x.Change(some(), f) } }
		due := func(e catalog.Extent) bool {
			age := now.Sub(e.Kept)
			return e.Home.Kind == core.HomePurged || age > policy.Consumed || policy.Unconsumed > 0 && age > policy.Unconsumed
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(*rapid.T) {
				in := rapid.SampledFrom([]core.QueueID{queue, queue, other}).Draw(t, "queue")
				e := core.Extent{ID: core.ExtentID{ID: core.NewID(now)}, Queue: in}
				x.Put(catalog.Extent{ExtentRecord: metadata.ExtentRecord{Extent: e}, State: core.ExtentOpen})
				ids = append(ids, e.ID)
			},
			"seal": edit(func(e *catalog.Extent) { e.State, e.Kept = core.ExtentSealed, now }),
			"leave": edit(func(e *catalog.Extent) {
				switch rapid.IntRange(0, 2).Draw(t, "how") {
				case 0:
					e.Home = core.Home{Kind: core.HomePurged}
				case 1:
					e.Home = core.Home{Kind: core.HomeMerged, Queue: map[core.QueueID]core.QueueID{queue: other, other: queue}[e.Queue]}
				default:
					e.State = core.ExtentRetiring
				}
			}),
			"wait": func(*rapid.T) { now = now.Add(rapid.SampledFrom(waits).Draw(t, "wait")) },
			"policy": func(*rapid.T) {
				policy = retention.Policy{Consumed: rapid.SampledFrom(waits).Draw(t, "consumed"), Unconsumed: rapid.SampledFrom(waits).Draw(t, "unconsumed")}
				read()
			},
			"": func(t *rapid.T) {
				got, _, _ := r.candidates(r.mu.settings[queue], now)
				var want []core.ExtentID
				leaving := 0
				for _, id := range ids {
					switch e, lives := x.Get(id); {
					case !lives || e.Queue != queue:
					case e.State == core.ExtentSealed && due(e):
						want = append(want, id)
					case e.State == core.ExtentRetiring:
						leaving++
					}
				}
				slices.SortFunc(want, func(a, b core.ExtentID) int { return bytes.Compare(a.ID[:], b.ID[:]) })
				if !slices.EqualFunc(got, want, func(e catalog.Extent, id core.ExtentID) bool { return e.ID == id }) {
					t.Fatalf("%d extents are due, want %d", len(got), len(want))
				}
				if seen := len(r.mu.seen); seen < leaving {
					t.Fatalf("%d marks were seen, want %d", seen, leaving)
				}
			},
		})
	})
}
