package frontend

import (
	"fmt"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

func TestPublishRoute(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	r := must(call(t, c.msgs.PublishRoute, &pb.PublishRouteRequest{Queue: "/t/a"}))(t)
	if len(r.Hosts) != 1 || r.Hosts[0].Id != "a" || r.Hosts[0].Address != c.members.Self().Address || r.Version == 0 {
		t.Errorf("got %v", r)
	}
	_, err := call(t, c.msgs.PublishRoute, &pb.PublishRouteRequest{Queue: "/t/none"})
	wantCode(t, "no such queue", err, core.CodeNotFound)
	_, err = call(t, c.msgs.PublishRoute, &pb.PublishRouteRequest{Queue: "/t/a/g.dlq"})
	wantCode(t, "a dead letter queue", err, core.CodeUnsupported)

	hosts := c.members.Hosts("")
	for i := range 5 {
		hosts = append(hosts, membership.Host{ID: core.HostID(fmt.Sprintf("in%d", i)), Roles: []string{"inputhost"}, Address: "127.0.0.1:1"})
	}
	if err := c.members.Set(hosts); err != nil {
		t.Fatal(err)
	}
	again := must(call(t, c.msgs.PublishRoute, &pb.PublishRouteRequest{Queue: "/t/a"}))(t)
	same := must(call(t, c.msgs.PublishRoute, &pb.PublishRouteRequest{Queue: "/t/a"}))(t)
	if len(again.Hosts) != 2 || again.Hosts[0].Id != same.Hosts[0].Id || again.Version <= r.Version {
		t.Errorf("got %v, then %v", again, same)
	}

	self := c.members.Self()
	self.Roles = []string{"frontend"}
	if err := c.members.Set([]membership.Host{self}); err != nil {
		t.Fatal(err)
	}
	_, err = call(t, c.msgs.PublishRoute, &pb.PublishRouteRequest{Queue: "/t/a"})
	wantCode(t, "no input host", err, core.CodeUnavailable)
	_, err = call(t, c.msgs.ConsumeRoute, &pb.ConsumeRouteRequest{Queue: "/t/a", Group: "g"})
	wantCode(t, "no output host", err, core.CodeUnavailable)
	_, err = call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "h"}})
	wantCode(t, "no controller", err, core.CodeUnknown)
}

// The hosts of a queue are spread, and one that goes moves only its own queues.
func TestRanked_Rendezvous(t *testing.T) {
	c := newHarness(t, nil)
	hosts := c.members.Hosts("")
	for i := range 9 {
		hosts = append(hosts, membership.Host{ID: core.HostID(fmt.Sprintf("in%d", i)), Roles: []string{"inputhost"}})
	}
	c.members.Set(hosts)
	count := make(map[core.HostID]int)
	first := make(map[core.ID]core.HostID)
	for range 1000 {
		id := core.NewID(time.Now())
		first[id] = c.host.svc.ranked(roleInput, id)[0].ID
		count[first[id]]++
	}
	for _, h := range hosts {
		if n := count[h.ID]; n < 50 || n > 170 {
			t.Errorf("host %s is first for %d of 1000 queues, want about 100", h.ID, n)
		}
	}
	gone := hosts[len(hosts)-1].ID
	c.members.Set(hosts[:len(hosts)-1])
	for id, was := range first {
		if is := c.host.svc.ranked(roleInput, id)[0].ID; is != was && was != gone {
			t.Fatalf("queue %s moved from %s to %s although %s went", id, was, is, gone)
		}
	}
}

func TestConsumeRoute_Owners(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	route := func() (ids []string) {
		for _, h := range must(call(t, c.msgs.ConsumeRoute, &pb.ConsumeRouteRequest{Queue: "/t/a", Group: "g"}))(t).Hosts {
			ids = append(ids, h.Id)
		}
		return ids
	}
	if got := route(); len(got) != 1 || got[0] != "a" {
		t.Errorf("one output host: got %v, want a", got)
	}
	for _, id := range []core.HostID{"b", "c", "d"} {
		c.addOutput(id)
	}
	if got := route(); len(got) != 4 {
		t.Errorf("nothing assigned: got %v, want all four: the first share may come to any", got)
	}
	var ids []core.HostID
	for _, id := range []core.HostID{"e", "f", "g", "h"} {
		c.addOutput(id)
	}
	ranked := c.host.svc.ranked(roleOutput, groupID(g).ID)
	for _, h := range ranked {
		ids = append(ids, h.ID)
	}
	last, other := ids[7], ids[6]
	if got := route(); len(got) != membership.ConsumeHosts {
		t.Errorf("of eight: got %v, want %d", got, membership.ConsumeHosts)
	}
	e1, e2, e3 := newExtent(g), newExtent(g), newExtent(g)
	c.assign(g, e1, 1, other)
	c.assign(g, e1, 2, last) // the higher one counts
	c.assign(g, e2, 1, "dead")
	c.assign(g, e3, 1, other)
	if err := metadata.Write(t.Context(), c.store, metadata.Dones, metadata.DoneKey(groupID(g), e3.ID, 0), metadata.DoneRecord{L: 1}, time.Now(), 0, metadata.One); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(sharesFresh)
	c.host.svc.now = func() time.Time { return later }
	if got := route(); len(got) != 5 || got[4] != string(last) {
		t.Errorf("got %v, want four and the owner %s", got, last)
	}
	for name, x := range map[string]struct {
		req  *pb.ConsumeRouteRequest
		code core.Code
	}{
		"no queue":  {&pb.ConsumeRouteRequest{Queue: "/t/none", Group: "g"}, core.CodeNotFound},
		"no group":  {&pb.ConsumeRouteRequest{Queue: "/t/a", Group: "none"}, core.CodeNotFound},
		"bad group": {&pb.ConsumeRouteRequest{Queue: "/t/a", Group: "../g"}, core.CodeBadName},
	} {
		_, err := call(t, c.msgs.ConsumeRoute, x.req)
		wantCode(t, name, err, x.code)
	}
}

func groupID(g *pb.Group) core.GroupID {
	id, _ := core.ParseID(g.Id)
	return core.GroupID{ID: id}
}

func newExtent(g *pb.Group) core.Extent {
	queue, _ := core.ParseID(g.QueueId)
	return core.Extent{
		ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: core.QueueID{ID: queue}, Kind: core.KindLog, Durability: core.DurabilityFsync,
		Input: "a", InputRun: core.RunID{ID: core.NewID(time.Now())}, Token: core.WriterToken{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a"},
	}
}

func (c *harness) assign(g *pb.Group, e core.Extent, counter uint64, owner core.HostID) {
	c.t.Helper()
	a := metadata.AssignmentRecord{Group: groupID(g), Queue: e.Queue, Name: g.Spec.Name, Extent: e, Counter: counter, By: "a", Owner: owner}
	if err := metadata.Write(c.t.Context(), c.store, metadata.Assignments, metadata.AssignmentKey(a.Group, e.ID, a.Precedence()), a, time.Now(), 0, metadata.One); err != nil {
		c.t.Fatal(err)
	}
}
