package frontend

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

func (c *harness) addExtent(e core.Extent) {
	c.t.Helper()
	r := metadata.ExtentRecord{Extent: e, Created: time.Now(), Wanted: 3}
	if err := metadata.Write(c.t.Context(), c.store, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), r, time.Now(), 0, metadata.One); err != nil {
		c.t.Fatal(err)
	}
	if err := metadata.Write(c.t.Context(), c.store, metadata.Work, metadata.HintKey(metadata.HintLive, e.ID), r, time.Now(), 0, metadata.One); err != nil {
		c.t.Fatal(err)
	}
}

func TestExtents_OpenAndSealed(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	open, sealed := newExtent(g), newExtent(g)
	sealed.Chain = 5
	c.addExtent(sealed)
	c.addExtent(open)
	seal := metadata.SealRecord{Extent: sealed, State: core.ExtentSealed, L: 42, Bytes: 4200, Holders: []core.HostID{"a"}}
	if err := metadata.Create(t.Context(), c.store, metadata.Seals, metadata.SealKey(sealed.ID), seal); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]*pb.ExtentInfo)
	req := &pb.ListExtentsRequest{Queue: "/t/a", Limit: 1}
	for range 3 {
		page := must(call(t, c.admin.ListExtents, req))(t)
		for _, e := range page.Extents {
			got[e.Extent] = e
		}
		if req.After = page.Next; req.After == "" {
			break
		}
	}
	if e := got[open.ID.String()]; e.GetState() != "open" || e.LastSeq != 7 || e.Bytes != 700 || e.ReadScope != "own" || len(e.Replicas) != 1 || e.Wanted != 3 || e.Chain != 0 {
		t.Errorf("open extent is %v", e)
	}
	if e := got[sealed.ID.String()]; e.GetState() != "sealed" || e.LastSeq != 42 || e.Bytes != 4200 || len(e.Copies) != 1 || e.Queue != "/t/a" || e.Wanted != 3 || e.Chain != 5 {
		t.Errorf("sealed extent is %v", e)
	}
	for _, id := range []core.ExtentID{open.ID, sealed.ID} {
		if e := must(call(t, c.admin.GetExtent, &pb.GetExtentRequest{Extent: id.String()}))(t); !proto.Equal(e, got[id.String()]) {
			t.Errorf("looked up %v, listed %v", e, got[id.String()])
		}
	}
}

func TestSealExtent(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	other := c.createQueue("/t/b")
	g := c.createGroup("/t/a", "g")
	e := newExtent(g)
	c.addExtent(e)
	must(call(t, c.admin.SealExtent, &pb.SealExtentAdminRequest{Queue: "/t/a", Extent: e.ID.String(), Force: true}))(t)
	if s := c.ctl.mu.sealed; len(s) != 1 || !s[0].Force || s[0].Who == "" || core.ID(s[0].Extent.Id) != e.ID.ID {
		t.Errorf("the controller got %v", s)
	}
	none := core.NewID(time.Now()).String()
	for name, x := range map[string]struct {
		req  *pb.SealExtentAdminRequest
		code core.Code
	}{
		"another queue's": {&pb.SealExtentAdminRequest{Queue: other.Spec.Path, Extent: e.ID.String()}, core.CodeNotFound},
		"no such extent":  {&pb.SealExtentAdminRequest{Queue: "/t/a", Extent: none}, core.CodeNotFound},
		"no such queue":   {&pb.SealExtentAdminRequest{Queue: "/t/none", Extent: e.ID.String()}, core.CodeNotFound},
		"quarantined":     {&pb.SealExtentAdminRequest{Queue: "/t/a", Extent: e.ID.String(), GiveUpQuarantined: true}, core.CodeBadArgument},
		"bad extent":      {&pb.SealExtentAdminRequest{Queue: "/t/a", Extent: "x"}, core.CodeBadID},
		"bad queue":       {&pb.SealExtentAdminRequest{Queue: "x", Extent: none}, core.CodeBadName},
	} {
		_, err := call(t, c.admin.SealExtent, x.req)
		wantCode(t, name, err, x.code)
	}
	_, err := call(t, c.admin.GetExtent, &pb.GetExtentRequest{Extent: none})
	wantCode(t, "look up none", err, core.CodeNotFound)
	_, err = call(t, c.admin.GetExtent, &pb.GetExtentRequest{})
	wantCode(t, "look up nothing", err, core.CodeBadID)
	_, err = call(t, c.admin.ListExtents, &pb.ListExtentsRequest{Queue: "/t/a", After: "x"})
	wantCode(t, "bad page token", err, core.CodeBadID)
}
