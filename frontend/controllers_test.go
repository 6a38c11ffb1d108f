package frontend

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// addController adds a controller.
func (c *harness) addController(id core.HostID) *fakeController {
	c.t.Helper()
	ctl := &fakeController{meta: c.store}
	mux := http.NewServeMux()
	mux.Handle(columbav1connect.NewControllerServiceHandler(ctl))
	srv := serve(mux)
	c.t.Cleanup(srv.Close)
	hosts := append(c.members.Hosts(""), membership.Host{ID: id, Roles: []string{roleController}, Address: srv.Listener.Addr().String()})
	if err := c.members.Set(hosts); err != nil {
		c.t.Fatal(err)
	}
	return ctl
}

// tells has a controller tell of queues, by their backlogs.
func (f *fakeController) tells(known, counted int, depths ...*pb.Depth) {
	f.depths, f.known, f.counted, f.more = depths, uint32(known), uint32(counted), false
	slices.SortFunc(f.depths, func(a, b *pb.Depth) int { return backlog.ByBacklog.Compare(placeOf(a), placeOf(b)) })
}

func placeOf(d *pb.Depth) backlog.Place {
	return backlog.Place{Value: d.Ready, Path: d.Queue, Group: d.Group}
}

// TestListDepths_OfTwoControllers: each of two controllers tells of its queues. Pages are those of one list.
func TestListDepths_OfTwoControllers(t *testing.T) {
	c := newHarness(t, nil)
	second := c.addController("b")
	all := make([]string, 0, 20)
	parts := [2][]*pb.Depth{}
	for i := range 20 {
		d := &pb.Depth{Queue: fmt.Sprintf("/t/%02d", i), Group: "g", Ready: uint64(100 - i)}
		all = append(all, d.Queue)
		parts[i*i%3%2] = append(parts[i*i%3%2], d)
	}
	both := &pb.Depth{Queue: "/t/05", Group: "g", Ready: 95} // was handed over between the two calls
	c.ctl.tells(20, len(parts[0]), append(parts[0], both)...)
	second.tells(21, len(parts[1]), parts[1]...) // has it, too
	for _, limit := range []int32{1, 3, 7, 19, 20, 0} {
		var got []string
		for after, page := "", 0; ; page++ {
			out := must(call(t, c.admin.ListDepths, &pb.ListDepthsRequest{After: after, Limit: limit}))(t)
			for _, d := range out.Depths {
				got = append(got, d.Queue)
			}
			if out.UncountedQueues != 1 || len(out.Silent) > 0 || len(out.Places) > 0 {
				t.Fatalf("a page says %v", out)
			}
			if after = out.Next; after == "" || page > 40 {
				break
			}
		}
		if !slices.Equal(got, all) {
			t.Errorf("in pages of %d: %v", limit, got)
		}
	}
	second.fail(core.Errorf(core.CodeUnavailable, "not counted yet"))
	if out := must(call(t, c.admin.ListDepths, &pb.ListDepthsRequest{}))(t); !slices.Equal(out.Silent, []string{"b"}) || len(out.Depths) < 5 || out.UncountedQueues == 0 {
		t.Errorf("without one of two: %v", out)
	}
	c.ctl.fail(core.Errorf(core.CodeUnavailable, "not counted yet"))
	_, err := call(t, c.admin.ListDepths, &pb.ListDepthsRequest{})
	wantCode(t, "without both", err, core.CodeUnavailable)
}

// TestListQueues_DepthsOfTwoControllers: a queue has the depth that its controller says. One that no controller has
// counted has none, instead of an empty one.
func TestListQueues_DepthsOfTwoControllers(t *testing.T) {
	c := newHarness(t, nil)
	second := c.addController("b")
	ids := make(map[string]string)
	for _, path := range []string{"/t/a", "/t/b", "/t/c", "/t/d"} {
		ids[path] = c.createQueue(path).Id
	}
	c.ctl.tells(3, 1, &pb.Depth{Queue: "/t/a", Ready: 1})
	c.ctl.others = []string{ids["/t/b"], ids["/t/c"]}
	second.tells(3, 1, &pb.Depth{Queue: "/t/b", Ready: 2})
	second.others = []string{ids["/t/a"], ids["/t/c"], ids["/t/d"]}
	out := must(call(t, c.admin.ListQueues, &pb.ListQueuesRequest{Depths: true}))(t)
	want := map[string]uint64{"/t/a": 1, "/t/b": 2, "/t/d": 0}
	for _, q := range out.Queues {
		ready, known := want[q.Spec.Path]
		if (q.Depth != nil) != known || q.Depth.GetReady() != ready {
			t.Errorf("%s has the depth %v", q.Spec.Path, q.Depth)
		}
	}
	c.ctl.garbage, second.garbage = true, true // ids that are too short, as no controller sends them
	if out := must(call(t, c.admin.ListQueues, &pb.ListQueuesRequest{Depths: true}))(t); len(out.Queues) != 4 {
		t.Errorf("with ids that are none: %v", out)
	}
	c.ctl.garbage, second.garbage = false, false
	if out := must(call(t, c.admin.ListQueues, &pb.ListQueuesRequest{Sort: "backlog"}))(t); out.UncountedQueues != 1 {
		t.Errorf("by backlog: %v", out)
	}
}

// TestDeleteOrphans_OfTwoControllers: each knows some. One that does not answer is named.
func TestDeleteOrphans_OfTwoControllers(t *testing.T) {
	c := newHarness(t, nil)
	second := c.addController("b")
	c.ctl.orphans = []*pb.OrphanExtent{{Extent: "1"}, {Extent: "2"}}
	second.orphans = []*pb.OrphanExtent{{Extent: "2"}, {Extent: "3"}}
	out := must(call(t, c.admin.DeleteOrphans, &pb.DeleteOrphansRequest{}))(t)
	if out.Count != 3 || len(out.Extents) != 3 || len(out.Silent) > 0 {
		t.Errorf("answered %v", out)
	}
	if len(c.ctl.mu.asked) != 1 || len(second.mu.asked) != 1 {
		t.Error("not all controllers were asked")
	}
	second.fail(core.Errorf(core.CodeUnavailable, "away"))
	out = must(call(t, c.admin.DeleteOrphans, &pb.DeleteOrphansRequest{}))(t)
	if out.Count != 2 || !slices.Equal(out.Silent, []string{"b"}) {
		t.Errorf("without one of them: %v", out)
	}
}

// TestUndecided_OfTwoControllers: only one of two knows why an extent stays sealing, whichever comes first for the
// queue.
func TestUndecided_OfTwoControllers(t *testing.T) {
	for _, knows := range []int{0, 1} {
		c := newHarness(t, nil)
		second := c.addController("b")
		c.createQueue("/t/a")
		g := c.createGroup("/t/a", "g")
		e := newExtent(g)
		c.addExtent(e)
		c.assign(g, e, 1, "a")
		c.out.onStuck = func(*pb.WhyStuckRequest) (*pb.WhyStuckResponse, error) {
			return &pb.WhyStuckResponse{Reason: "nothing_waits"}, nil
		}
		seal := metadata.SealRecord{Extent: e, State: core.ExtentSealing, Changed: time.Now().Add(-time.Minute)}
		if err := metadata.Create(t.Context(), c.store, metadata.Seals, metadata.SealKey(e.ID), seal); err != nil {
			t.Fatal(err)
		}
		[]*fakeController{c.ctl, second}[knows].mu.stay = []*pb.UndecidedExtent{{Extent: e.ID.String(), Queue: e.Queue.String(), Reason: "nobody counts"}}
		if w := must(call(t, c.admin.WhyStuck, &pb.WhyStuckRequest{Queue: "/t/a", Group: "g"}))(t); w.Reason != "not_sealed" || !strings.Contains(w.Detail, "nobody counts") {
			t.Errorf("controller %d knows, and why-stuck says %v", knows, w)
		}
	}
}
