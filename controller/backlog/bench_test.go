package backlog

import (
	"fmt"
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// BenchmarkRound computes the backlogs of 10,000 groups on three output hosts: nothing has changed; in one of a hundred
// queues messages are published and consumed; all queues have an open extent. It tells what a round sends and receives,
// and what it reads of the metadata.
func BenchmarkRound(b *testing.B) {
	const groups = 10_000
	for _, of := range []struct{ busy, open int }{{0, 0}, {groups / 100, groups / 100}, {0, groups}} {
		busy := of.busy
		b.Run(fmt.Sprintf("groups=%d/busy=%d/open=%d", groups, busy, of.open), func(b *testing.B) {
			r := newHarness(b, 1000)
			owners := []*fakeOwner{r.owner("o1"), r.owner("o2"), r.owner("o3")}
			var all []metadata.GroupRecord
			var open []*catalog.Extent
			for i := range groups {
				path := fmt.Sprintf("/t/q%d", i)
				q := r.queue(path)
				old, e := r.extent(q), r.extent(q)
				r.seal(old, 1000, 100_000)
				if i >= of.open {
					r.seal(e, 1000, 100_000)
				}
				g := r.group(q, path, "g")
				r.SetGroups(q, []Group{pending(g, old, e)})
				for _, x := range []*catalog.Extent{old, e} {
					owners[i%3].says(g, x, &pb.ShareCounts{Settled: 500, Oldest: 1})
				}
				all, open = append(all, g), append(open, e)
			}
			r.round()
			calls, bytes, reads := r.calls.Load(), r.bytes.Load(), r.meta.reads.Load()
			n := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				n++
				for i := range busy {
					r.store(open[i], core.Seq(1000+10*n), 100*(1000+10*n))
					owners[i%3].says(all[i], open[i], &pb.ShareCounts{Settled: 500 + 10*n, Oldest: 1})
				}
				r.round()
			}
			b.ReportMetric(float64(r.calls.Load()-calls)/float64(n), "calls/op")
			b.ReportMetric(float64(r.bytes.Load()-bytes)/float64(n), "rpc-B/op")
			b.ReportMetric(float64(r.meta.reads.Load()-reads)/float64(n), "reads/op")
		})
	}
}
