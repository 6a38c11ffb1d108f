package frontend

import (
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

func TestCreateGroup_MakesDLQAndStarts(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	if g.DlqPath != "/t/a/g.dlq" || g.Spec.MaxDeliveries != 10 || g.Spec.LockTimeout.AsDuration() != time.Minute || g.Spec.Start != "latest" {
		t.Errorf("created %v", g)
	}
	if c.ctl.starts() != 1 {
		t.Errorf("the controller was asked %d times, want once", c.ctl.starts())
	}
	if dlq := must(call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: g.DlqPath}))(t); dlq.Spec.UnconsumedRetention.AsDuration() != dlqRetention {
		t.Errorf("dead letter queue is %v", dlq)
	}
	got := must(call(t, c.admin.GetGroup, &pb.GetGroupRequest{Queue: "/t/a", Name: "g"}))(t)
	if got.Id != g.Id || got.QueueId != g.QueueId {
		t.Errorf("looked up %v, want %v", got, g)
	}
	_, err := call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g"}})
	wantCode(t, "second create", err, core.CodeExists)
	c.createGroup("/t/a", "f")
	l := must(call(t, c.admin.ListGroups, &pb.ListGroupsRequest{Queue: "/t/a"}))(t)
	if len(l.Groups) != 2 || l.Groups[0].Spec.Name != "f" || l.Groups[1].Spec.Name != "g" {
		t.Errorf("listed %v", l.Groups)
	}
}

func TestCreateGroup_RefusesBadSpecs(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "live")
	_, err := call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{})
	wantCode(t, "no spec", err, core.CodeBadArgument)
	for name, x := range map[string]struct {
		spec *pb.GroupSpec
		code core.Code
		text string
	}{
		"no name":          {&pb.GroupSpec{}, core.CodeBadName, ""},
		"path as name":     {&pb.GroupSpec{Name: "a/b"}, core.CodeBadName, ""},
		"control":          {&pb.GroupSpec{Name: "a\x01"}, core.CodeBadName, ""},
		"long":             {&pb.GroupSpec{Name: strings.Repeat("x", 300)}, core.CodeBadName, ""},
		"reserved":         {&pb.GroupSpec{Name: "a.dlq"}, core.CodeBadName, "reserved"},
		"bad queue":        {&pb.GroupSpec{Queue: "/x", Name: "g"}, core.CodeBadName, ""},
		"missing queue":    {&pb.GroupSpec{Queue: "/t/none", Name: "g"}, core.CodeNotFound, "/t/none"},
		"dlq":              {&pb.GroupSpec{Queue: "/t/a/live.dlq", Name: "g", Exhausted: "drop"}, core.CodeBadArgument, "dead letter"},
		"start":            {&pb.GroupSpec{Name: "g", Start: "yesterday"}, core.CodeBadArgument, "start"},
		"lock timeout":     {&pb.GroupSpec{Name: "g", LockTimeout: durationpb.New(time.Millisecond)}, core.CodeBadArgument, "lock-timeout"},
		"max deliveries":   {&pb.GroupSpec{Name: "g", MaxDeliveries: 1001}, core.CodeBadArgument, "max-deliveries"},
		"retries":          {&pb.GroupSpec{Name: "g", MaxDelayedRetries: 99}, core.CodeBadArgument, "max-delayed-retries"},
		"exhausted":        {&pb.GroupSpec{Name: "g", Exhausted: "explode"}, core.CodeBadArgument, "exhausted"},
		"status":           {&pb.GroupSpec{Name: "g", Status: "deleted"}, core.CodeBadArgument, "status"},
		"backoff":          {&pb.GroupSpec{Name: "g", Backoff: &pb.Backoff{Min: durationpb.New(time.Second), Factor: 0.5}}, core.CodeBadArgument, "backoff"},
		"delay":            {&pb.GroupSpec{Name: "g", Delay: durationpb.New(core.MaxGroupDelay + 1)}, core.CodeBadArgument, "delay"},
		"skip older":       {&pb.GroupSpec{Name: "g", Delay: durationpb.New(time.Hour), SkipOlder: durationpb.New(time.Second)}, core.CodeBadArgument, "skip-older"},
		"negative timeout": {&pb.GroupSpec{Name: "g", LockTimeout: durationpb.New(-time.Second)}, core.CodeBadArgument, "lock-timeout"},
	} {
		if x.spec.Queue == "" {
			x.spec.Queue = "/t/a"
		}
		_, err := call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: x.spec})
		wantCode(t, name, err, x.code)
		if err != nil && !strings.Contains(err.Error(), x.text) {
			t.Errorf("%s: %q does not name %q", name, err, x.text)
		}
	}
	if l := must(call(t, c.admin.ListGroups, &pb.ListGroupsRequest{Queue: "/t/a"}))(t); len(l.Groups) != 1 {
		t.Errorf("something was stored: %v", l.Groups)
	}
}

func TestCreateGroup_SecondCallFinishesHalfMade(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.ctl.fail(core.Errorf(core.CodeUnavailable, "not now"))
	spec := &pb.GroupSpec{Queue: "/t/a", Name: "g", Start: "-2h"}
	_, err := call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: spec})
	wantCode(t, "create without a controller", err, core.CodeUnknown)
	_, err = call(t, c.msgs.ConsumeRoute, &pb.ConsumeRouteRequest{Queue: "/t/a", Group: "g"})
	wantCode(t, "consume route of the half-made group", err, core.CodeNotFound)
	if l := must(call(t, c.admin.ListGroups, &pb.ListGroupsRequest{Queue: "/t/a"}))(t); len(l.Groups) > 0 {
		t.Errorf("the half-made group is listed: %v", l.Groups)
	}
	c.ctl.fail(nil)
	_, err = call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g", MaxDeliveries: 3}})
	wantCode(t, "create with other settings", err, core.CodeExists)
	if err == nil || !strings.Contains(err.Error(), "half made") || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("create with other settings says %v", err)
	}
	must(call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: spec}))(t)
	must(call(t, c.admin.GetGroup, &pb.GetGroupRequest{Queue: "/t/a", Name: "g"}))(t)
}

// TestCreateGroup_HalfMadeStart: a half-made group begins at the time that its first call named. A second call with
// another time is refused; with the same time in another zone it finishes the group.
func TestCreateGroup_HalfMadeStart(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	create := func(start string) error {
		_, err := call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g", Start: start}})
		return err
	}
	c.ctl.fail(core.Errorf(core.CodeUnavailable, "not now"))
	wantCode(t, "create without a controller", create("2026-01-02T15:04:05Z"), core.CodeUnknown)
	c.ctl.fail(nil)
	wantCode(t, "create with another time", create("2026-01-02T15:04:06Z"), core.CodeExists)
	if err := create("2026-01-02T17:04:05+02:00"); err != nil {
		t.Errorf("create with the same time: %v", err)
	}
}

func TestDeleteGroup_HalfMade(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.ctl.fail(core.Errorf(core.CodeUnavailable, "not now"))
	call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g"}})
	must(call(t, c.admin.DeleteGroup, &pb.DeleteGroupRequest{Queue: "/t/a", Name: "g"}))(t)
	_, err := call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: "/t/a/g.dlq"})
	wantCode(t, "its dead letter queue", err, core.CodeNotFound)
}

func TestDeleteGroup_NameIsFreeForAnother(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	first := c.createGroup("/t/a", "g")
	dlq := must(call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: first.DlqPath}))(t)
	must(call(t, c.admin.DeleteGroup, &pb.DeleteGroupRequest{Queue: "/t/a", Name: "g"}))(t)
	_, err := call(t, c.admin.DeleteGroup, &pb.DeleteGroupRequest{Queue: "/t/a", Name: "g"})
	wantCode(t, "second delete", err, core.CodeNotFound)
	_, err = call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: first.DlqPath})
	wantCode(t, "its dead letter queue", err, core.CodeNotFound)
	second := c.createGroup("/t/a", "g")
	fresh := must(call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: second.DlqPath}))(t)
	if second.Id == first.Id || fresh.Id == dlq.Id {
		t.Error("the new group, or its dead letter queue, has the old id")
	}
	_, err = call(t, c.admin.DeleteGroup, &pb.DeleteGroupRequest{Queue: "/t/a", Name: "none"})
	wantCode(t, "delete of none", err, core.CodeNotFound)
	_, err = call(t, c.admin.DeleteGroup, &pb.DeleteGroupRequest{Queue: "/t/none", Name: "g"})
	wantCode(t, "delete on no queue", err, core.CodeNotFound)
}

// A dead letter queue that a deleted group left behind does not stop a new group of that name.
func TestCreateGroup_ReplacesLeftDLQ(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	old := metadata.NameRecord{
		Queue: core.QueueID{ID: core.NewID(time.UnixMilli(1000))}, Owner: core.GroupID{ID: core.NewID(time.UnixMilli(1000))},
		Spec: core.QueueSpec{Path: "/t/a/g.dlq"}.WithDefaults(1, 1),
	}
	if err := metadata.Create(t.Context(), c.store, metadata.Names, metadata.NameKey("/t/a/g.dlq"), old); err != nil {
		t.Fatal(err)
	}
	c.createGroup("/t/a", "g")
	if dlq := must(call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: "/t/a/g.dlq"}))(t); dlq.Id == old.Queue.String() {
		t.Error("the new group has the old dead letter queue")
	}
}

func TestCreateGroup_QueueDeletedMeanwhile(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	var once sync.Once
	c.ctl.mu.onStart = func() {
		once.Do(func() { must(call(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: "/t/a"}))(t) })
	}
	_, err := call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g"}})
	wantCode(t, "create", err, core.CodeConflict)
	_, err = call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: "/t/a/g.dlq"})
	wantCode(t, "its dead letter queue", err, core.CodeNotFound)
}

// TestCreateGroup_MadeAnewMeanwhile: the group is deleted, and another call begins to make one under its name, before a
// controller starts the first. The other one is not started, for it has no dead letter queue yet.
func TestCreateGroup_MadeAnewMeanwhile(t *testing.T) {
	c := newHarness(t, nil)
	q := c.createQueue("/t/a")
	id := must(core.ParseID(q.Id))(t)
	key := metadata.GroupKey(core.QueueID{ID: id}, "g")
	other := core.GroupID{ID: core.NewID(time.Now())}
	c.ctl.mu.onStart = func() {
		must(metadata.Change(t.Context(), c.store, metadata.Groups, key, func(g *metadata.GroupRecord) error {
			g.ID, g.DLQ = other, core.QueueID{ID: core.NewID(time.Now())}
			return nil
		}))(t)
	}
	_, err := call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g"}})
	wantCode(t, "create", err, core.CodeConflict)
	g, _, err := metadata.Read[metadata.GroupRecord](t.Context(), c.store, metadata.Groups, key, metadata.Serial)
	if err != nil || g.ID != other || g.Started {
		t.Errorf("the other group is %+v, %v; want it not started", g, err)
	}
}

func TestUpdateGroup(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	g := must(call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: &pb.GroupSpec{
		Queue: "/t/a", Name: "g", MaxDeliveries: -1, Status: "disabled", Exhausted: "drop", MaxDelayedRetries: 500,
	}}))(t)
	if g.Spec.MaxDeliveries != -1 || g.Spec.MaxDelayedRetries != 500 || g.Spec.LockTimeout.AsDuration() != time.Minute || g.Spec.Exhausted != "drop" {
		t.Errorf("updated to %v", g.Spec)
	}
	_, err := call(t, c.msgs.ConsumeRoute, &pb.ConsumeRouteRequest{Queue: "/t/a", Group: "g"})
	wantCode(t, "consume route of a disabled group", err, core.CodeDisabled)
	for _, delay := range []time.Duration{time.Hour, 0} {
		to := &pb.GroupSpec{Queue: "/t/a", Name: "g", Delay: durationpb.New(delay)}
		if g = must(call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: to, Fields: []string{"delay"}}))(t); g.Spec.Delay.AsDuration() != delay {
			t.Errorf("the delay was updated to %s, want %s", g.Spec.Delay.AsDuration(), delay)
		}
	}
	for name, x := range map[string]struct {
		spec *pb.GroupSpec
		code core.Code
	}{
		"start":     {&pb.GroupSpec{Queue: "/t/a", Name: "g", Start: "earliest"}, core.CodeBadArgument},
		"bad start": {&pb.GroupSpec{Queue: "/t/a", Name: "g", Start: "x"}, core.CodeBadArgument},
		"value":     {&pb.GroupSpec{Queue: "/t/a", Name: "g", MaxDeliveries: -2}, core.CodeBadArgument},
		"skip all":  {&pb.GroupSpec{Queue: "/t/a", Name: "g", Delay: durationpb.New(time.Hour), SkipOlder: durationpb.New(time.Hour)}, core.CodeBadArgument},
		"no group":  {&pb.GroupSpec{Queue: "/t/a", Name: "h"}, core.CodeNotFound},
		"no queue":  {&pb.GroupSpec{Queue: "/t/b", Name: "g"}, core.CodeNotFound},
		"no names":  {nil, core.CodeBadName},
	} {
		_, err := call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: x.spec})
		wantCode(t, name, err, x.code)
	}
}

// TestGroups_ControllersHearOfChanges: the controller of a queue is told when a group was changed.
func TestGroups_ControllersHearOfChanges(t *testing.T) {
	c := newHarness(t, nil)
	q := c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	heard := func(what string, want int) {
		t.Helper()
		c.ctl.mu.Lock()
		defer c.ctl.mu.Unlock()
		if len(c.ctl.mu.heard) != want || want > 0 && c.ctl.mu.heard[want-1] != q.Id {
			t.Errorf("%s: the controller heard of queues %v, want %d times %s", what, c.ctl.mu.heard, want, q.Id)
		}
	}
	heard("a new group, which the controller starts", 0)
	must(call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g", MaxDeliveries: 3}}))(t)
	heard("the group is changed", 1)
	must(call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", ConsumedRetention: durationpb.New(time.Hour)}}))(t)
	heard("the queue is changed", 2)
}

// TestGroups_AHangingControllerKeepsNoOtherFromHearing: the controller that is likely to be responsible for a queue
// hangs, and another one is responsible.
func TestGroups_AHangingControllerKeepsNoOtherFromHearing(t *testing.T) {
	c := newHarness(t, nil)
	first := c.members.Hosts(roleController)[0].ID
	both := map[core.HostID]*fakeController{first: c.ctl, "b": c.addController("b")}
	q := c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	id, err := core.ParseID(q.Id)
	if err != nil {
		t.Fatal(err)
	}
	ranked := c.host.svc.ranked(roleController, id)
	both[ranked[0].ID].hangs.Store(true)
	must(call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g", MaxDeliveries: 3}}))(t)
	other := both[ranked[1].ID]
	other.mu.Lock()
	defer other.mu.Unlock()
	if len(other.mu.heard) != 1 {
		t.Errorf("the other controller heard of queues %v, want one", other.mu.heard)
	}
}

// TestGroups_AControllerHearsOfAChangeLater: no controller answers when a group is changed. One hears of it when it
// does.
func TestGroups_AControllerHearsOfAChangeLater(t *testing.T) {
	c := newHarness(t, nil)
	q := c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	c.ctl.hangs.Store(true)
	must(call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g", MaxDeliveries: 3}}))(t)
	c.host.svc.retell.Round(t.Context()) // it hangs still
	c.ctl.hangs.Store(false)
	for range 2 {
		c.host.svc.retell.Round(t.Context())
	}
	c.ctl.mu.Lock()
	defer c.ctl.mu.Unlock()
	if len(c.ctl.mu.heard) != 1 || c.ctl.mu.heard[0] != q.Id {
		t.Errorf("the controller heard of queues %v, want once %s", c.ctl.mu.heard, q.Id)
	}
}
