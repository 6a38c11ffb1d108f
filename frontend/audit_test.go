package frontend

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

func TestListAudit(t *testing.T) {
	c := newHarness(t, nil)
	began := time.Now()
	for _, name := range []string{"/t", "/t", "/u"} {
		_, _ = call(t, c.admin.CreateNamespace, &pb.CreateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: name, MaxQueues: 1}})
	}
	list := func(req *pb.ListAuditRequest) (got []string) {
		t.Helper()
		for {
			page := must(call(t, c.admin.ListAudit, req))(t)
			for _, e := range page.Entries {
				if e.Who == "" || e.When.AsTime().Before(began.Add(-time.Second)) {
					t.Errorf("nobody asked for it, or at no time: %v", e)
				}
				got = append(got, e.What+" "+e.Object+": "+e.Result)
			}
			if req.After = page.Next; page.Next == "" {
				return got
			}
		}
	}
	all := "create namespace /t: ok|create namespace /t: already_exists|create namespace /u: ok"
	for name, want := range map[string]struct {
		req  *pb.ListAuditRequest
		want string
	}{
		"all":            {&pb.ListAuditRequest{}, all},
		"prefix":         {&pb.ListAuditRequest{Prefix: "/u"}, "create namespace /u: ok"},
		"since":          {&pb.ListAuditRequest{Since: timestamppb.New(began.Add(-time.Hour))}, all},
		"since tomorrow": {&pb.ListAuditRequest{Since: timestamppb.New(began.AddDate(0, 0, 1))}, ""},
		"longest prefix": {&pb.ListAuditRequest{Prefix: strings.Repeat("x", 512)}, ""},
	} {
		if got := strings.Join(list(want.req), "|"); sortedParts(got) != sortedParts(want.want) {
			t.Errorf("%s: %s, want %s", name, got, want.want)
		}
	}
	if got := list(&pb.ListAuditRequest{Limit: 1}); len(got) != 3 {
		t.Errorf("one by one: %v", got)
	}

	id := core.NewID(began).String()
	for name, req := range map[string]*pb.ListAuditRequest{
		"limit below zero":    {Limit: -1},
		"limit above":         {Limit: 1001},
		"long prefix":         {Prefix: strings.Repeat("x", 513)},
		"no time":             {Since: &timestamppb.Timestamp{Nanos: -1}},
		"time out of range":   {Since: &timestamppb.Timestamp{Seconds: 1 << 60}},
		"token without an id": {After: "2026-01-02"},
		"token with no day":   {After: "yesterday/" + id},
		"token with no id":    {After: "2026-01-02/7"},
		"token that goes on":  {After: "2026-01-02/" + id + "/"},
	} {
		_, err := call(t, c.admin.ListAudit, req)
		wantCode(t, name, err, core.CodeBadArgument)
	}
	must(call(t, c.admin.ListAudit, &pb.ListAuditRequest{Limit: 1000, After: "2026-01-02/" + id}))(t)
}

// sortedParts orders what was begun in the same millisecond, which a list does not.
func sortedParts(s string) string {
	parts := strings.Split(s, "|")
	slices.Sort(parts)
	return strings.Join(parts, "|")
}

func TestAudit_QueuesAndGroups(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	must(call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", Status: "send-only"}, Fields: []string{"status"}}))(t)
	must(call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g", Status: "disabled"}, Fields: []string{"status"}}))(t)
	must(call(t, c.admin.DeleteGroup, &pb.DeleteGroupRequest{Queue: "/t/a", Name: "g"}))(t)
	_, err := call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", Consistency: "cp", MaxMessage: 7}})
	wantCode(t, "an update of what is fixed", err, core.CodeBadArgument)
	_, err = call(t, c.admin.DeleteGroup, &pb.DeleteGroupRequest{Queue: "/t/a", Name: "none"})
	wantCode(t, "delete a group that is not there", err, core.CodeNotFound)
	must(call(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: "/t/a"}))(t)
	var got []string
	for _, e := range must(call(t, c.admin.ListAudit, &pb.ListAuditRequest{Prefix: "/t/a"}))(t).Entries {
		got = append(got, e.What+" "+e.Object+": "+e.Result)
	}
	want := []string{"update queue: status /t/a: ok", "update queue: consistency, max_message /t/a: bad_argument", "update group: status /t/a/g: ok", "delete group /t/a/g: ok", "delete queue /t/a: ok"}
	slices.Sort(got) // see sortedParts
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("the audit has %q, want %q", got, want)
	}
}

// TestDeletion_IsLogged tells the log of a deleted group and queue.
func TestDeletion_IsLogged(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	must(call(t, c.admin.DeleteGroup, &pb.DeleteGroupRequest{Queue: "/t/a", Name: "g"}))(t)
	must(call(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: "/t/a"}))(t)
	for _, want := range []string{`what="delete group" object=/t/a/g`, `what="delete queue" object=/t/a`} {
		if text := c.log.String(); !strings.Contains(text, want) {
			t.Errorf("the log lacks %s: %s", want, text)
		}
	}
}
