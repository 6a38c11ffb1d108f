package frontend

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

func (f *fakeController) DescribeMajority(context.Context, *connect.Request[pb.DescribeMajorityRequest]) (*connect.Response[pb.DescribeMajorityResponse], error) {
	if d := f.says.Load(); d != nil {
		return connect.NewResponse(d), nil
	}
	return connect.NewResponse(&pb.DescribeMajorityResponse{State: "majority"}), nil
}

func TestListHosts_ControllersWithoutAMajority(t *testing.T) {
	c := newHarness(t, nil)
	c.addOutput("x")
	second := c.addController("b")
	since := timestamppb.New(time.Now().Add(-time.Minute))
	second.says.Store(&pb.DescribeMajorityResponse{State: "cut", Silent: []string{"d"}, HaveMajority: []string{"a"}, Since: since})
	third := c.addController("c")
	third.says.Store(&pb.DescribeMajorityResponse{State: "outage", Since: since})
	got := make(map[string]*pb.HostInfo)
	for _, h := range must(call(t, c.admin.ListHosts, &pb.ListHostsRequest{}))(t).Hosts {
		got[h.Host] = h
	}
	for host, want := range map[string][2]string{
		"a": {"refuses", "majority"}, "b": {"no majority: cut off from the metadata, unlike a, and from d", "cut"}, "c": {"no majority: outage of the metadata", "outage"}, "x": {"up", ""},
	} {
		h := got[host]
		if h.GetState() != want[0] || h.GetMajority() != want[1] || (h.GetMajoritySince() != nil) != strings.HasPrefix(want[0], "no") {
			t.Errorf("host %s is %v, want %q", host, h, want)
		}
	}
}

// TestWhyStuck_WithoutAMajority: the lack of a majority is the reason where nothing else holds the oldest message for
// certain, and else a further one.
func TestWhyStuck_WithoutAMajority(t *testing.T) {
	c := newHarness(t, nil)
	second := c.addController("b")
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	why := func() *pb.WhyStuckResponse {
		t.Helper()
		return must(call(t, c.admin.WhyStuck, &pb.WhyStuckRequest{Queue: "/t/a", Group: "g"}))(t)
	}
	outage := &pb.DescribeMajorityResponse{State: "outage", Since: timestamppb.New(time.Date(2026, 7, 1, 10, 20, 30, 0, time.UTC))}
	cut := &pb.DescribeMajorityResponse{State: "cut", Silent: []string{"c"}, Since: outage.Since}
	c.ctl.says.Store(outage)
	if w := why(); w.Reason != "nothing_waits" || strings.Contains(w.Detail, "majority") {
		t.Errorf("one of two controllers has a majority: %v", w)
	}
	second.says.Store(outage)
	if w := why(); w.Reason != "metadata_outage" || len(w.Also) > 0 || !strings.Contains(w.Detail, "controller a says since 10:20:30 UTC: no majority: outage of the metadata") || w.Group != "g" {
		t.Errorf("of a group that has all: %v", w)
	}
	second.says.Store(cut)
	if w := why(); w.Reason != "metadata_cut" || !strings.Contains(w.Text, "AP queue") || !strings.Contains(w.Detail, "controller b") || !strings.Contains(w.Detail, "cut off from c") {
		t.Errorf("one is in a cut: %v", w)
	}
	e := newExtent(g)
	c.addExtent(e)
	if w := why(); w.Reason != "metadata_cut" || !slices.Equal(w.Also, []string{"no_owner"}) {
		t.Errorf("of an extent without an owner: %v", w)
	}
	c.assign(g, e, 1, "a")
	c.out.onStuck = stands(core.Receipt{Extent: e.ID, Seq: 1}, time.Minute)
	if w := why(); w.Reason != "in_flight" || !slices.Equal(w.Also, []string{"metadata_cut"}) || !strings.Contains(w.Detail, "cut off from c") {
		t.Errorf("of a message that is in flight: %v", w)
	}
	c.ctl.says.Store(&pb.DescribeMajorityResponse{}) // its metadata are embedded
	if w := why(); w.Reason != "in_flight" || len(w.Also) > 0 {
		t.Errorf("with embedded metadata: %v", w)
	}
}
