package frontend

import (
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

func TestPublishRoute_Chain(t *testing.T) {
	c := newHarness(t, nil)
	q := must(call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/cp", Consistency: "cp", Replicas: 1, MinReplicas: 1}}))(t)
	if q.Spec.Consistency != "cp" {
		t.Errorf("the queue is %q", q.Spec.Consistency)
	}
	id, err := core.ParseID(q.Id)
	if err != nil {
		t.Fatal(err)
	}
	writer := membership.Host{ID: "writer", Roles: []string{"inputhost"}, Address: "127.0.0.1:1", Run: core.RunID{ID: core.NewID(time.Now())}}
	hosts := append(c.members.Hosts(""), writer)
	if err := c.members.Set(hosts); err != nil {
		t.Fatal(err)
	}
	route := func(what string, want int) {
		t.Helper()
		r := must(call(t, c.msgs.PublishRoute, &pb.PublishRouteRequest{Queue: "/t/cp"}))(t)
		if len(r.Hosts) != want || want == 1 && r.Hosts[0].Id != "writer" {
			t.Errorf("%s: got %v, want %d hosts", what, r.Hosts, want)
		}
	}
	route("no head", 2)
	now := time.Now()
	head := core.Extent{ID: core.ExtentID{ID: core.NewID(now)}, Queue: core.QueueID{ID: id}, Input: writer.ID, InputRun: writer.Run, Chain: 1}
	next := metadata.HeadRecord{Queue: head.Queue, Extent: head, Changed: now, Attempt: core.NewID(now)}
	if err := metadata.MoveHead(t.Context(), c.store, metadata.HeadRecord{}, next); err != nil {
		t.Fatal(err)
	}
	route("an open head", 1)
	hosts[len(hosts)-1].Run = core.RunID{ID: core.NewID(now)}
	if err := c.members.Set(hosts); err != nil {
		t.Fatal(err)
	}
	route("another run of its host", 2)
	hosts[len(hosts)-1] = writer
	if err := c.members.Set(hosts); err != nil {
		t.Fatal(err)
	}
	seal := metadata.SealRecord{Extent: head, State: core.ExtentSealing}
	if err := metadata.Create(t.Context(), c.store, metadata.Seals, metadata.SealKey(head.ID), seal); err != nil {
		t.Fatal(err)
	}
	route("a head that is being sealed", 2)
}
