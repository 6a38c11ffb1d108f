package frontend

import (
	"strings"
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

func TestGetDepth_SumsOverOwners(t *testing.T) {
	c := newCluster(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	c.createGroup("/t/a", "h")
	b := c.addOutput("b")
	c.assign(g, newExtent(g), 1, "a")
	c.assign(g, newExtent(g), 1, "b")
	depth := func(r *pb.GetDepthRequest) (*pb.GetDepthResponse, error) {
		return &pb.GetDepthResponse{Groups: []*pb.Depth{{Group: r.Group, Ready: 1, InFlight: 2, Delayed: 3, Parked: 4, Blocked: 7, Dead: 5, OldestReadyMs: 6}}}, nil
	}
	c.out.onDepth, b.onDepth = depth, depth
	d := must(call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/a"}))(t)
	if len(d.Groups) != 2 || d.Groups[1].Group != "h" || d.Groups[1].Ready != 1 {
		t.Fatalf("got %v", d)
	}
	if x := d.Groups[0]; x.Queue != "/t/a" || x.Group != "g" || x.Ready != 2 || x.InFlight != 4 || x.Delayed != 6 || x.Parked != 8 || x.Blocked != 14 || x.Dead != 5 || x.OldestReadyMs != 6 {
		t.Errorf("two owners: got %v", x)
	}
	b.onDepth = func(*pb.GetDepthRequest) (*pb.GetDepthResponse, error) {
		return nil, core.Errorf(core.CodeUnavailable, "down")
	}
	_, err := call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/a", Group: "g"})
	wantCode(t, "an owner that is down", err, core.CodeUnavailable)
	_, err = call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/a", Group: "none"})
	wantCode(t, "no such group", err, core.CodeNotFound)
	_, err = call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/none"})
	wantCode(t, "no such queue", err, core.CodeNotFound)
	_, err = call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "none"})
	wantCode(t, "bad queue", err, core.CodeBadName)
}

func TestDeadLettersAndPeek_Forwarded(t *testing.T) {
	c := newCluster(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	c.out.onDead = func(r *pb.ListDeadLettersRequest) (*pb.ListDeadLettersResponse, error) {
		return &pb.ListDeadLettersResponse{DeadLetters: []*pb.DeadLetter{{Reason: r.Queue + r.Group}}, Next: "n"}, nil
	}
	c.out.onPeek = func(r *pb.PeekRequest) (*pb.PeekResponse, error) {
		return &pb.PeekResponse{Messages: []*pb.StoredMessage{{Receipt: r.Queue}}}, nil
	}
	dead := must(call(t, c.admin.ListDeadLetters, &pb.ListDeadLettersRequest{Queue: "/t/a", Group: "g"}))(t)
	if len(dead.DeadLetters) != 1 || dead.DeadLetters[0].Reason != "/t/ag" || dead.Next != "n" {
		t.Errorf("got %v", dead)
	}
	for _, path := range []string{"/t/a", g.DlqPath} {
		if p := must(call(t, c.admin.Peek, &pb.PeekRequest{Queue: path}))(t); len(p.Messages) != 1 || p.Messages[0].Receipt != path {
			t.Errorf("got %v", p)
		}
	}
	for name, x := range map[string]struct {
		req  *pb.ListDeadLettersRequest
		code core.Code
	}{
		"no group":      {&pb.ListDeadLettersRequest{Queue: "/t/a", Group: "none"}, core.CodeNotFound},
		"no queue":      {&pb.ListDeadLettersRequest{Queue: "/t/none", Group: "g"}, core.CodeNotFound},
		"bad group":     {&pb.ListDeadLettersRequest{Queue: "/t/a"}, core.CodeBadName},
		"bad id":        {&pb.ListDeadLettersRequest{Queue: "/t/a", Group: "g", Id: "x"}, core.CodeBadID},
		"bad token":     {&pb.ListDeadLettersRequest{Queue: "/t/a", Group: "g", After: "x"}, core.CodeBadArgument},
		"bad token id":  {&pb.ListDeadLettersRequest{Queue: "/t/a", Group: "g", After: "x:1"}, core.CodeBadID},
		"huge token":    {&pb.ListDeadLettersRequest{Queue: "/t/a", Group: "g", After: strings.Repeat("1", 1<<20)}, core.CodeBadArgument},
		"negative page": {&pb.ListDeadLettersRequest{Queue: "/t/a", Group: "g", Limit: -1}, core.CodeBadArgument},
		"large page":    {&pb.ListDeadLettersRequest{Queue: "/t/a", Group: "g", Limit: 1001}, core.CodeBadArgument},
	} {
		_, err := call(t, c.admin.ListDeadLetters, x.req)
		wantCode(t, name, err, x.code)
	}
	_, err := call(t, c.admin.Peek, &pb.PeekRequest{Queue: "/t/none"})
	wantCode(t, "peek of no queue", err, core.CodeNotFound)
	_, err = call(t, c.admin.Peek, &pb.PeekRequest{Queue: "/t/a", After: ":"})
	wantCode(t, "peek with a bad token", err, core.CodeBadArgument)
}
