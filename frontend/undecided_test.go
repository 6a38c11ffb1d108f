package frontend

import (
	"strings"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestUndecided: an extent stays sealing. Its group is told why, and that its depth is not known.
func TestUndecided(t *testing.T) {
	c := newHarness(t, nil)
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
	c.ctl.mu.stay = []*pb.UndecidedExtent{{Extent: e.ID.String(), Queue: e.Queue.String(), Reason: "nobody counts", Away: []string{"host-x"}}}
	why := func() *pb.WhyStuckResponse {
		t.Helper()
		return must(call(t, c.admin.WhyStuck, &pb.WhyStuckRequest{Queue: "/t/a", Group: "g"}))(t)
	}
	w := why()
	if w.Reason != "not_sealed" || w.Extents != 1 || !strings.Contains(w.Detail, "nobody counts") || !strings.Contains(w.Detail, "columba seal --force --all-of-store host-x") || w.Text == "" {
		t.Errorf("why-stuck says %v", w)
	}
	at := core.Receipt{Extent: e.ID, Seq: 1}
	c.out.onStuck = stands(at, time.Minute)
	if w := why(); w.Reason != "in_flight" || len(w.Also) != 1 || w.Also[0] != "not_sealed" || w.Extents != 1 {
		t.Errorf("of a message that is in flight: %v", w)
	}
	c.out.onStuck = func(r *pb.WhyStuckRequest) (*pb.WhyStuckResponse, error) {
		w, err := stands(at, time.Minute)(r)
		w.Reason = "chain_order"
		return w, err
	}
	if w := why(); w.Reason != "not_sealed" || len(w.Also) != 1 || w.Also[0] != "chain_order" || w.Message.GetReceipt() != at.String() {
		t.Errorf("of a chain: %v", w)
	}
	c.ctl.fail(core.Errorf(core.CodeUnavailable, "no controller"))
	if w := why(); w.Reason != "chain_order" {
		t.Errorf("without a controller: %v", w)
	}
	c.out.onDepth = func(*pb.GetDepthRequest) (*pb.GetDepthResponse, error) {
		return &pb.GetDepthResponse{Groups: []*pb.Depth{{Extents: 1}}}, nil
	}
	d := must(call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/a", Group: "g"}))(t)
	if d.Groups[0].UnknownExtents == 0 {
		t.Errorf("the depth %v hides that an extent has no end", d.Groups[0])
	}
}

func TestSealAllOfStore(t *testing.T) {
	c := newHarness(t, nil)
	q := c.createQueue("/t/a")
	var got *pb.SealAllOfStoreRequest
	var answer error
	c.ctl.mu.onSeal = func(r *pb.SealAllOfStoreRequest) (*pb.SealAllOfStoreResponse, error) {
		got = r
		return &pb.SealAllOfStoreResponse{Extents: []*pb.UndecidedExtent{{Extent: r.After, Queue: q.Id, Outcome: "sealed"}}, Next: r.After}, answer
	}
	after := core.NewID(time.Now()).String()
	out := must(call(t, c.admin.SealAllOfStore, &pb.SealAllOfStoreRequest{Store: "host-x", DryRun: true, After: after, Who: "forged"}))(t)
	if len(out.Extents) != 1 || out.Extents[0].Queue != "/t/a" || out.Next != after {
		t.Errorf("answered %v", out)
	}
	if got.Store != "host-x" || !got.DryRun || got.After != after || got.Who == "forged" {
		t.Errorf("the controller got %v", got)
	}
	for name, x := range map[string]struct {
		req  *pb.SealAllOfStoreRequest
		code core.Code
	}{
		"no store":  {&pb.SealAllOfStoreRequest{}, core.CodeBadName},
		"bad after": {&pb.SealAllOfStoreRequest{Store: "host-x", After: "x"}, core.CodeBadID},
	} {
		_, err := call(t, c.admin.SealAllOfStore, x.req)
		wantCode(t, name, err, x.code)
	}
	answer = core.Errorf(core.CodeConflict, "it is there")
	_, err := call(t, c.admin.SealAllOfStore, &pb.SealAllOfStoreRequest{Store: "host-x"})
	wantCode(t, "a store that is there", err, core.CodeConflict)
}

func TestDeleteOrphans(t *testing.T) {
	c := newHarness(t, nil)
	if out := must(call(t, c.admin.DeleteOrphans, &pb.DeleteOrphansRequest{DryRun: true, Who: "forged"}))(t); out.Count != 7 {
		t.Errorf("answered %v", out)
	}
	if r, ok := c.ctl.mu.asked[0].(*pb.DeleteOrphansRequest); !ok || !r.DryRun || r.Who == "forged" {
		t.Errorf("the controller got %v", c.ctl.mu.asked)
	}
	c.ctl.fail(core.Errorf(core.CodeDraining, "stopping"))
	_, err := call(t, c.admin.DeleteOrphans, &pb.DeleteOrphansRequest{})
	wantCode(t, "a controller that stops", err, core.CodeDraining)
}
