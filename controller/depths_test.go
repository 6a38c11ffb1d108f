package controller

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestDepths_EachQueueHasOneController: each of two controllers tells the depths of its own queues, and how many it
// knows. After one of them has ended nothing is told of its queues, until the other one has counted them.
func TestDepths_EachQueueHasOneController(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness, both [2]*running) {
		const queues = 8
		var all []core.QueueID
		var mine [2]int
		for range queues {
			q := r.queue(1, 1)
			r.group(q, "g")
			mine[of(both, q)]++
			e, err := both[of(both, q)].createExtent(r.t.Context(), r.wish(q))
			r.ok(err)
			r.stores[0].write(e, numbers(1, 5)...)
			_, err = r.seal(e, 5)
			r.ok(err)
			all = append(all, q)
		}
		tells := func(c *running) *pb.ListDepthsResponse {
			req := &pb.ListDepthsRequest{Part: true}
			for _, q := range all {
				req.Ids = append(req.Ids, q.ID[:])
			}
			resp, err := (&service{c.Host}).ListDepths(r.t.Context(), connect.NewRequest(req))
			if core.CodeOf(convert.FromRPC(err)) == core.CodeUnavailable { // it has not counted yet
				return &pb.ListDepthsResponse{}
			}
			r.ok(err)
			return resp.Msg
		}
		right := func(m *pb.ListDepthsResponse, n int) bool {
			for _, d := range m.Depths {
				if d.Ready != 5 || d.UnknownExtents != 0 {
					return false
				}
			}
			return len(m.Depths) == n && int(m.Counted) == n && m.Known == queues && len(m.Others) == queues-n
		}
		r.eventually("each tells of its queues", 2*time.Minute, func() bool { return right(tells(both[0]), mine[0]) && right(tells(both[1]), mine[1]) })
		r.sleep(10 * time.Second)
		for i, c := range both {
			if m := tells(c); !right(m, mine[i]) {
				t.Errorf("controller %d tells %v", i, m)
			}
		}
		both[0].end()
		r.ctl = both[1]
		if m := tells(both[1]); !right(m, mine[1]) {
			t.Errorf("before it takes over the other one tells %v", m)
		}
		for began := time.Now(); !right(tells(both[1]), queues); r.sleep(100 * time.Millisecond) {
			if m := tells(both[1]); len(m.Depths)+len(m.Others) != queues || time.Since(began) > time.Minute {
				t.Fatalf("%s later the other one tells %v", time.Since(began), m)
			}
		}
	})
}

// TestDepths_ConsumedExtentHasNoCheckpoint: its owner removes the checkpoint when the share is done. Until the rounds
// see that, it counts as settled.
func TestDepths_ConsumedExtentHasNoCheckpoint(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		q := r.queue(1, 1)
		group := r.group(q, "g")
		e, err := r.ctl.createExtent(r.t.Context(), r.wish(q))
		r.ok(err)
		r.stores[0].write(e, numbers(1, 5)...)
		_, err = r.seal(e, 5)
		r.ok(err)
		g, _, err := metadata.Read[metadata.GroupRecord](r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(q, "g"), metadata.Serial)
		r.ok(err)
		known, _ := r.ctl.extents.Get(e.ID)
		for _, want := range []uint64{0, 5} {
			p, err := counted{r.ctl.Host}.Saved(r.t.Context(), g, known)
			r.ok(err)
			if p.Settled != want {
				t.Errorf("%d messages are settled, want %d", p.Settled, want)
			}
			r.done(group, e)
		}
	})
}
