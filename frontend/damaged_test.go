package frontend

import (
	"strings"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// damageExtent overwrites the create row of an extent.
func (c *harness) damageExtent(e core.Extent) {
	c.t.Helper()
	if err := c.store.Put(c.t.Context(), metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), []byte(`{"id":5}`), time.Now().Add(time.Second), 0, metadata.Quorum); err != nil {
		c.t.Fatal(err)
	}
}

// TestDamagedCreateRow: the create row of an extent cannot be decoded. A hint stands in for it; without one, the extent
// is listed as damaged, and counts as unknown. Neither holds up the other extents of the queue. The deletion of the
// queue names the row as long as nothing says that the extent has ended.
func TestDamagedCreateRow(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	hinted, lost, whole := newExtent(g), newExtent(g), newExtent(g)
	for _, e := range []core.Extent{hinted, lost, whole} {
		c.addExtent(e)
	}
	r := metadata.ExtentRecord{Extent: hinted, Created: hinted.ID.Time()}
	if err := metadata.Write(t.Context(), c.store, metadata.Work, metadata.HintKey(metadata.HintLive, hinted.ID), r, time.Now(), 0, metadata.Quorum); err != nil {
		t.Fatal(err)
	}
	for _, hint := range []metadata.Hint{metadata.HintLive, metadata.HintOpen} {
		if err := c.store.Remove(t.Context(), metadata.Work, metadata.HintKey(hint, lost.ID), time.Now().Add(time.Minute), metadata.Quorum); err != nil {
			t.Fatal(err)
		}
	}
	c.damageExtent(hinted)
	c.damageExtent(lost)
	states := make(map[string]string)
	for _, e := range must(call(t, c.admin.ListExtents, &pb.ListExtentsRequest{Queue: "/t/a"}))(t).Extents {
		states[e.Extent] = e.State
	}
	if len(states) != 3 || states[hinted.ID.String()] != "open" || states[lost.ID.String()] != "damaged" || states[whole.ID.String()] != "open" {
		t.Errorf("the extents are %v", states)
	}
	c.out.onDepth = func(*pb.GetDepthRequest) (*pb.GetDepthResponse, error) { return &pb.GetDepthResponse{}, nil }
	depth := must(call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/a", Group: "g"}))(t)
	if d := depth.Groups[0]; d.UnknownExtents != 1 || d.Extents != 3 || d.Ready != 10 {
		t.Errorf("the depth is %v, want the 10 messages of two extents, and one extent unknown", d)
	}
	for _, e := range []core.Extent{hinted, whole} {
		c.assign(g, e, 1, "a")
	}
	c.out.onStuck = func(*pb.WhyStuckRequest) (*pb.WhyStuckResponse, error) {
		return &pb.WhyStuckResponse{Reason: "nothing_waits"}, nil
	}
	why := must(call(t, c.admin.WhyStuck, &pb.WhyStuckRequest{Queue: "/t/a", Group: "g"}))(t)
	if why.Reason != "row_damaged" || !strings.Contains(why.Detail, lost.ID.String()) || why.Extents != 1 {
		t.Errorf("why-stuck says %v, want the row of %s", why, lost.ID)
	}
	_, err := call(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: "/t/a"})
	wantCode(t, "a deletion", err, core.CodeCorrupt)
	if err != nil && (!strings.Contains(err.Error(), lost.ID.String()) || strings.Contains(err.Error(), "open extents")) {
		t.Errorf("the deletion says %v, want the row of %s", err, lost.ID)
	}
	if sealed := len(c.ctl.mu.sealed); sealed != 2 {
		t.Errorf("%d extents are sealed by the deletion, want the 2 whose tuples are known", sealed)
	}
	seal := metadata.SealRecord{Extent: lost, State: core.ExtentSealed, Ended: time.Now()}
	if err := metadata.Create(t.Context(), c.store, metadata.Seals, metadata.SealKey(lost.ID), seal); err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: "/t/a"}); err != nil {
		t.Errorf("the deletion after the end of the damaged extent: %v", err)
	}
}
