package frontend

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
)

func TestCreateQueue_DefaultsAndLookUp(t *testing.T) {
	c := newHarness(t, nil, func(cfg *Config) { cfg.Replicas, cfg.MinReplicas = 3, 2 })
	_, err := call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a"}})
	wantCode(t, "two replicas on one store", err, core.CodeIncomplete)
	c.addStore("s2")
	q := c.createQueue("/t/a")
	if q.Spec.Replicas != 3 || q.Spec.MinReplicas != 2 || q.Spec.Consistency != "ap" || q.Spec.Durability != "fsync" || q.Spec.Status != "enabled" {
		t.Errorf("defaults are %v", q.Spec)
	}
	got := must(call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: "/t/a"}))(t)
	if got.Id != q.Id || got.Created.AsTime().IsZero() {
		t.Errorf("looked up %v, want %v", got, q)
	}
	_, err = call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a"}})
	wantCode(t, "second create", err, core.CodeExists)
}

func (c *harness) addStore(id core.HostID) {
	c.t.Helper()
	if err := c.members.Set(append(c.members.Hosts(""), membership.Host{ID: id, Roles: []string{roleStore}})); err != nil {
		c.t.Fatal(err)
	}
}

// TestUpdateQueue_WhileStoresAreAway changes what has nothing to do with them.
func TestUpdateQueue_WhileStoresAreAway(t *testing.T) {
	c := newHarness(t, nil, func(cfg *Config) { cfg.Replicas, cfg.MinReplicas = 3, 2 })
	all := c.members.Hosts("")
	c.addStore("s2")
	c.createQueue("/t/a")
	if err := c.members.Set(all); err != nil {
		t.Fatal(err)
	}
	q := must(call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", Status: "receive-only"}}))(t)
	if q.Spec.Status != "receive-only" || q.Spec.MinReplicas != 2 {
		t.Errorf("got %v", q.Spec)
	}
	_, err := call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", MinReplicas: 3}})
	wantCode(t, "more replicas than stores", err, core.CodeIncomplete)
	q = must(call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", Replicas: 1, MinReplicas: 1}}))(t)
	if q.Spec.Replicas != 1 || q.Spec.MinReplicas != 1 {
		t.Errorf("fewer replicas: got %v", q.Spec)
	}
}

var badPaths = map[string]core.Code{
	"":                                  core.CodeBadName,
	"/x":                                core.CodeBadName,
	"a/b":                               core.CodeBadName,
	"/../x":                             core.CodeBadName,
	"/t//a":                             core.CodeBadName,
	"/t/a/":                             core.CodeBadName,
	"/t/a\x00b":                         core.CodeBadName,
	"/t/a\nb":                           core.CodeBadName,
	"/t/ä":                              core.CodeBadName,
	"/t/a b":                            core.CodeBadName,
	"/t/-a":                             core.CodeBadName,
	"/a/b/c/d/e/f":                      core.CodeBadName,
	"/t/" + strings.Repeat("x", 300):    core.CodeBadName,
	"/t/" + strings.Repeat("/x", 50000): core.CodeBadName,
}

func TestQueues_RefuseBadPaths(t *testing.T) {
	c := newHarness(t, nil)
	for path, code := range badPaths {
		name := path[:min(len(path), 20)]
		_, err := call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: path}})
		wantCode(t, fmt.Sprintf("create %q", name), err, code)
		_, err = call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: path})
		wantCode(t, fmt.Sprintf("get %q", name), err, code)
		_, err = call(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: path})
		wantCode(t, fmt.Sprintf("delete %q", name), err, code)
		_, err = call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: path}})
		wantCode(t, fmt.Sprintf("update %q", name), err, code)
		_, err = call(t, c.admin.ListGroups, &pb.ListGroupsRequest{Queue: path})
		wantCode(t, fmt.Sprintf("list groups %q", name), err, code)
		_, err = call(t, c.admin.ListExtents, &pb.ListExtentsRequest{Queue: path})
		wantCode(t, fmt.Sprintf("list extents %q", name), err, code)
		_, err = call(t, c.admin.Peek, &pb.PeekRequest{Queue: path})
		wantCode(t, fmt.Sprintf("peek %q", name), err, code)
		_, err = call(t, c.msgs.PublishRoute, &pb.PublishRouteRequest{Queue: path})
		wantCode(t, fmt.Sprintf("publish route %q", name), err, code)
		_, err = call(t, c.msgs.ConsumeRoute, &pb.ConsumeRouteRequest{Queue: path, Group: "g"})
		wantCode(t, fmt.Sprintf("consume route %q", name), err, code)
		_, err = call(t, c.msgs.Publish, &pb.PublishRequest{Queue: path, Messages: []*pb.Message{{}}})
		wantCode(t, fmt.Sprintf("publish %q", name), err, code)
		_, err = call(t, c.msgs.Pull, &pb.PullRequest{Queue: path, Group: "g"})
		wantCode(t, fmt.Sprintf("pull %q", name), err, code)
	}
	if l := must(call(t, c.admin.ListQueues, &pb.ListQueuesRequest{}))(t); len(l.Queues) > 0 {
		t.Errorf("something was stored: %v", l.Queues)
	}
}

func TestCreateQueue_RefusesBadSpecs(t *testing.T) {
	c := newHarness(t, nil)
	_, err := call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{})
	wantCode(t, "no spec", err, core.CodeBadArgument)
	for name, x := range map[string]struct {
		spec *pb.QueueSpec
		code core.Code
	}{
		"reserved":       {&pb.QueueSpec{Path: "/t/a/g.dlq"}, core.CodeBadName},
		"reserved retry": {&pb.QueueSpec{Path: "/t/g.retry"}, core.CodeBadName},
		"consistency":    {&pb.QueueSpec{Path: "/t/b", Consistency: "maybe"}, core.CodeBadArgument},
		"durability":     {&pb.QueueSpec{Path: "/t/b", Durability: "none"}, core.CodeBadArgument},
		"replicas":       {&pb.QueueSpec{Path: "/t/b", Replicas: 8}, core.CodeBadArgument},
		"few replicas":   {&pb.QueueSpec{Path: "/t/b", Replicas: -1}, core.CodeBadArgument},
		"min replicas":   {&pb.QueueSpec{Path: "/t/b", Replicas: 2, MinReplicas: 3}, core.CodeBadArgument},
		"retention":      {&pb.QueueSpec{Path: "/t/b", ConsumedRetention: durationpb.New(-time.Second)}, core.CodeBadArgument},
		"max message":    {&pb.QueueSpec{Path: "/t/b", MaxMessage: 1 << 40}, core.CodeBadArgument},
		"status":         {&pb.QueueSpec{Path: "/t/b", Status: "deleted"}, core.CodeBadArgument},
	} {
		_, err := call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: x.spec})
		wantCode(t, name, err, x.code)
	}
	_, err = call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: "/t/b"})
	wantCode(t, "look up after the refusals", err, core.CodeNotFound)
}

func TestCreateQueues_EachHasItsOutcome(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/many/q5")
	var specs []*pb.QueueSpec
	for i := range 999 {
		specs = append(specs, &pb.QueueSpec{Path: fmt.Sprintf("/many/q%d", i)})
	}
	specs = append(specs, &pb.QueueSpec{Path: "bad"})
	res := must(call(t, c.admin.CreateQueues, &pb.CreateQueuesRequest{Specs: specs}))(t)
	for i, r := range res.Results {
		want := ""
		switch i {
		case 5:
			want = string(core.CodeExists)
		case 999:
			want = string(core.CodeBadName)
		}
		if r.GetError().GetCode() != want || want == "" && r.Queue.GetSpec().GetPath() != specs[i].Path {
			t.Fatalf("queue %d: got %v, want code %q", i, r, want)
		}
	}
	_, err := call(t, c.admin.CreateQueues, &pb.CreateQueuesRequest{Specs: make([]*pb.QueueSpec, 1001)})
	wantCode(t, "1001 queues", err, core.CodeBadArgument)

	seen := make(map[string]bool)
	req := &pb.ListQueuesRequest{Prefix: "/many/q1", Limit: 7}
	for {
		page := must(call(t, c.admin.ListQueues, req))(t)
		for _, q := range page.Queues {
			if seen[q.Spec.Path] || !strings.HasPrefix(q.Spec.Path, "/many/q1") {
				t.Fatalf("%s is listed twice, or lacks the prefix", q.Spec.Path)
			}
			seen[q.Spec.Path] = true
		}
		if req.After = page.Next; req.After == "" {
			break
		}
	}
	if len(seen) != 111 {
		t.Errorf("%d queues begin with /many/q1, want 111", len(seen))
	}
}

func TestListQueues_RefusesBadPages(t *testing.T) {
	c := newHarness(t, nil)
	for name, x := range map[string]struct {
		req  *pb.ListQueuesRequest
		code core.Code
	}{
		"prefix without /": {&pb.ListQueuesRequest{Prefix: "t"}, core.CodeBadName},
		"control prefix":   {&pb.ListQueuesRequest{Prefix: "/t\x00"}, core.CodeBadName},
		"huge prefix":      {&pb.ListQueuesRequest{Prefix: "/" + strings.Repeat("x", 10000)}, core.CodeBadName},
		"bad token":        {&pb.ListQueuesRequest{After: "?"}, core.CodeBadName},
		"negative":         {&pb.ListQueuesRequest{Limit: -1}, core.CodeBadArgument},
		"too many":         {&pb.ListQueuesRequest{Limit: 1001}, core.CodeBadArgument},
	} {
		_, err := call(t, c.admin.ListQueues, x.req)
		wantCode(t, name, err, x.code)
	}
}

func TestUpdateQueue(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	q := must(call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", Status: "receive-only", MaxMessage: 5}}))(t)
	if q.Spec.Status != "receive-only" || q.Spec.MaxMessage != 5 || q.Spec.Replicas != 1 {
		t.Errorf("updated to %v", q.Spec)
	}
	_, err := call(t, c.msgs.PublishRoute, &pb.PublishRouteRequest{Queue: "/t/a"})
	wantCode(t, "publish route of a receive-only queue", err, core.CodeDisabled)
	_, err = call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", Consistency: "cp"}})
	wantCode(t, "another consistency", err, core.CodeBadArgument)
	_, err = call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", Replicas: 100}})
	wantCode(t, "too many replicas", err, core.CodeBadArgument)
	_, err = call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/none", Replicas: 1}})
	wantCode(t, "no such queue", err, core.CodeNotFound)
	_, err = call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{})
	wantCode(t, "no spec", err, core.CodeBadName)
}

func TestDeleteQueue_PathIsFreeForAnother(t *testing.T) {
	c := newHarness(t, nil)
	first := c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	must(call(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: "/t/a"}))(t)
	for _, path := range []string{"/t/a", g.DlqPath} {
		_, err := call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: path})
		wantCode(t, "look up "+path, err, core.CodeNotFound)
	}
	_, err := call(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: "/t/a"})
	wantCode(t, "second delete", err, core.CodeNotFound)
	if l := must(call(t, c.admin.ListQueues, &pb.ListQueuesRequest{}))(t); len(l.Queues) > 0 {
		t.Errorf("deleted queues are listed: %v", l.Queues)
	}
	second := c.createQueue("/t/a")
	if second.Id == first.Id {
		t.Error("the new queue has the old id")
	}
	if l := must(call(t, c.admin.ListGroups, &pb.ListGroupsRequest{Queue: "/t/a"}))(t); len(l.Groups) > 0 {
		t.Errorf("the new queue has the old groups: %v", l.Groups)
	}
	if again := c.createGroup("/t/a", "g"); again.Id == g.Id {
		t.Error("the new group has the old id")
	}
}

func TestQueues_HalfMadeIsFinished(t *testing.T) {
	c := newHarness(t, nil)
	id := core.QueueID{ID: core.NewID(time.Now())}
	spec := core.QueueSpec{Path: "/t/half", MaxMessage: 77}.WithDefaults(1, 1)
	if err := metadata.Create(t.Context(), c.store, metadata.Names, metadata.NameKey("/t/half"), metadata.NameRecord{Queue: id, Spec: spec}); err != nil {
		t.Fatal(err)
	}
	_, err := call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/half"}})
	wantCode(t, "create over a half-made one", err, core.CodeExists)
	q := must(call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: "/t/half"}))(t)
	if q.Id != id.String() || q.Spec.MaxMessage != 77 {
		t.Errorf("finished as %v", q)
	}
}

func TestQueues_HalfDeletedIsFinished(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	q := must(call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: "/t/a"}))(t)
	id, _ := core.ParseID(q.Id)
	_, err := metadata.Change(t.Context(), c.store, metadata.Queues, metadata.QueueKey(core.QueueID{ID: id}), func(q *metadata.QueueRecord) error {
		q.Spec.Status = core.StatusDeleted
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = call(t, c.msgs.PublishRoute, &pb.PublishRouteRequest{Queue: "/t/a"})
	wantCode(t, "publish route of a dying queue", err, core.CodeNotFound)
	must(call(t, c.admin.CreateNamespace, &pb.CreateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: "/t", MaxQueues: 1}}))(t)
	if n := must(call(t, c.admin.GetNamespace, &pb.GetNamespaceRequest{Name: "/t"}))(t); n.Queues != 0 {
		t.Errorf("a queue that is being deleted counts: %d", n.Queues)
	}
	if fresh := c.createQueue("/t/a"); fresh.Id == q.Id {
		t.Error("the dying queue came back")
	}
	_, err = call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: g.DlqPath})
	wantCode(t, "its dead letter queue", err, core.CodeNotFound)
}

// TestDeleteQueue_Again: a second call finishes what a first one left, and says so.
func TestDeleteQueue_Again(t *testing.T) {
	c := newHarness(t, nil)
	q := c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	id, _ := core.ParseID(q.Id)
	_, err := metadata.Change(t.Context(), c.store, metadata.Queues, metadata.QueueKey(core.QueueID{ID: id}), func(q *metadata.QueueRecord) error {
		q.Spec.Status = core.StatusDeleted
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	must(call(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: "/t/a"}))(t)
	_, err = call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: g.DlqPath})
	wantCode(t, "its dead letter queue", err, core.CodeNotFound)
	for hint, err := range metadata.All[metadata.DeletedQueueRecord](t.Context(), c.store, metadata.Work, metadata.PartitionDeletedQueue, metadata.Serial) {
		if err != nil || !hint.Value.Done {
			t.Errorf("a hint to a deletion that is done: %+v, %v", hint.Value, err)
		}
	}
}

// In any order of calls through two frontends, and with any failure of the metadata, a live queue has its name and a
// live group its dead letter queue.
func TestNames_ConsistentThroughFaults(t *testing.T) {
	behind := memory.New()
	store := faulty.New(behind, faulty.Faults{Seed: rand.Uint64(), Before: 0.05, Lost: 0.1, Stale: 0.2, Delay: time.Millisecond})
	callAtOnce(t, twoFrontends(t, store, func(cfg *Config) { cfg.CallTimeout = 3 * time.Second }), 30)
	checkNames(t, behind)
}

func checkNames(t *testing.T, s metadata.Store) {
	t.Helper()
	groups := 0
	for q, err := range metadata.All[metadata.QueueRecord](t.Context(), s, metadata.Queues, metadata.PartitionID, metadata.Serial) {
		if err != nil {
			t.Fatal(err)
		}
		if q.Value.Spec.Status == core.StatusDeleted || !q.Value.Owner.IsZero() {
			continue
		}
		name, _, err := metadata.Read[metadata.NameRecord](t.Context(), s, metadata.Names, metadata.NameKey(q.Value.Spec.Path), metadata.Serial)
		if err != nil || name.Queue != q.Value.ID {
			t.Errorf("queue %s is live, but %s names %s (%v)", q.Value.ID, q.Value.Spec.Path, name.Queue, err)
		}
		for g, err := range metadata.All[metadata.GroupRecord](t.Context(), s, metadata.Groups, q.Value.ID.String(), metadata.Serial) {
			if err != nil {
				t.Fatal(err)
			}
			if !g.Value.Started || g.Value.Spec.Status == core.StatusDeleted {
				continue
			}
			groups++
			path := core.DLQPath(q.Value.Spec.Path, g.Value.Spec.Name)
			name, _, err := metadata.Read[metadata.NameRecord](t.Context(), s, metadata.Names, metadata.NameKey(path), metadata.Serial)
			dlq, _, qerr := metadata.Read[metadata.QueueRecord](t.Context(), s, metadata.Queues, metadata.QueueKey(g.Value.DLQ), metadata.Serial)
			if err := errors.Join(err, qerr); err != nil || name.Queue != g.Value.DLQ || dlq.Owner != g.Value.ID || dlq.Spec.Status == core.StatusDeleted {
				t.Errorf("group %s is live, but %s names %s, owner %s, %s (%v)", g.Value.ID, path, name.Queue, dlq.Owner, dlq.Spec.Status, err)
			}
		}
	}
	t.Logf("%d live groups checked", groups)
}
