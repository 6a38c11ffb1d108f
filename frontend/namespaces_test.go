package frontend

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

func TestNamespaces(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	n := must(call(t, c.admin.CreateNamespace, &pb.CreateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: "/t", MaxQueues: 2, BytesPerSecond: 1000}}))(t)
	if n.Spec.MaxQueues != 2 || n.Created == nil {
		t.Errorf("created %v", n)
	}
	_, err := call(t, c.admin.CreateNamespace, &pb.CreateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: "/t"}})
	wantCode(t, "created twice", err, core.CodeExists)
	for name, spec := range map[string]*pb.NamespaceSpec{
		"no name": {}, "no slash": {Name: "t"}, "a path": {Name: "/t/a"}, "reserved": {Name: "/t.dlq"},
	} {
		_, err := call(t, c.admin.CreateNamespace, &pb.CreateNamespaceRequest{Spec: spec})
		wantCode(t, name, err, core.CodeBadName)
	}
	_, err = call(t, c.admin.CreateNamespace, &pb.CreateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: "/neg", BacklogBytes: -1}})
	wantCode(t, "below zero", err, core.CodeBadArgument)

	n = must(call(t, c.admin.UpdateNamespace, &pb.UpdateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: "/t", MessagesPerSecond: 5}, Fields: []string{"messages_per_second", "bytes_per_second"}}))(t)
	if n.Spec.MessagesPerSecond != 5 || n.Spec.BytesPerSecond != 0 || n.Spec.MaxQueues != 2 {
		t.Errorf("updated to %v", n.Spec)
	}
	_, err = call(t, c.admin.UpdateNamespace, &pb.UpdateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: "/none", MaxQueues: 1}})
	wantCode(t, "update of one without limits", err, core.CodeNotFound)
	_, err = call(t, c.admin.UpdateNamespace, &pb.UpdateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: "/t"}, Fields: []string{"name"}})
	wantCode(t, "update of the name", err, core.CodeBadArgument)

	must(call(t, c.admin.CreateNamespace, &pb.CreateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: "/u"}}))(t)
	page := must(call(t, c.admin.ListNamespaces, &pb.ListNamespacesRequest{Limit: 1}))(t)
	if len(page.Namespaces) != 1 || page.Namespaces[0].Spec.Name != "/t" || page.Next == "" {
		t.Errorf("the first page is %v", page)
	}
	page = must(call(t, c.admin.ListNamespaces, &pb.ListNamespacesRequest{After: page.Next}))(t)
	if len(page.Namespaces) != 1 || page.Namespaces[0].Spec.Name != "/u" || page.Next != "" {
		t.Errorf("the second page is %v", page)
	}
	must(call(t, c.admin.DeleteNamespace, &pb.DeleteNamespaceRequest{Name: "/u"}))(t)
	_, err = call(t, c.admin.GetNamespace, &pb.GetNamespaceRequest{Name: "/u"})
	wantCode(t, "show of a deleted one", err, core.CodeNotFound)
	_, err = call(t, c.admin.DeleteNamespace, &pb.DeleteNamespaceRequest{Name: "/u"})
	wantCode(t, "deleted twice", err, core.CodeNotFound)

	audited := make(map[string]int)
	for r, err := range metadata.All[metadata.AuditRecord](t.Context(), c.store, metadata.Audit, metadata.AuditPartition(time.Now()), metadata.One) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Value.Who == "" {
			t.Errorf("nobody asked for %+v", r.Value)
		}
		audited[r.Value.What+" "+r.Value.Object+": "+r.Value.Result]++
	}
	want := map[string]int{
		"create namespace /t: ok": 1, "create namespace /t: already_exists": 1, "update namespace /t: ok": 1, "update namespace /none: not_found": 1,
		"create namespace /u: ok": 1, "delete namespace /u: ok": 1, "delete namespace /u: not_found": 1,
	}
	if diff := cmp.Diff(want, audited); diff != "" {
		t.Errorf("the audit differs (-want +got):\n%s", diff)
	}
}

// TestNamespaces_MaxQueues makes as many as there may be, and not one more; who has more than a new limit allows keeps
// them.
func TestNamespaces_MaxQueues(t *testing.T) {
	c := newHarness(t, nil)
	for i := range 3 {
		c.createQueue(fmt.Sprintf("/t/q%d", i))
	}
	must(call(t, c.admin.CreateNamespace, &pb.CreateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: "/t", MaxQueues: 2}}))(t)
	create := func(path string) error {
		_, err := call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: path}})
		return err
	}
	wantCode(t, "one more than too many", create("/t/more"), core.CodeConflict)
	wantCode(t, "one that is there", create("/t/q0"), core.CodeExists)
	for i := range 2 {
		must(call(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: fmt.Sprintf("/t/q%d", i)}))(t)
	}
	if err := create("/t/more"); err != nil {
		t.Errorf("the second of two: %v", err)
	}
	if n := must(call(t, c.admin.GetNamespace, &pb.GetNamespaceRequest{Name: "/t"}))(t); n.Queues != 2 {
		t.Errorf("it has %d queues, want 2", n.Queues)
	}
	wantCode(t, "the third of two", create("/t/third"), core.CodeConflict)
	if err := create("/tt/q"); err != nil {
		t.Errorf("in a namespace whose name begins the same: %v", err)
	}
}
