package frontend

import (
	"slices"
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
)

// TestListQueues_WithoutBuiltIn: whoever does not want the queues that belong to groups gets full pages of the others.
func TestListQueues_WithoutBuiltIn(t *testing.T) {
	c := newHarness(t, nil)
	for _, path := range []string{"/t/a", "/t/b", "/t/c"} {
		c.createQueue(path)
		must(call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: &pb.GroupSpec{Queue: path, Name: "g"}}))(t)
	}
	for without, want := range map[bool][]string{true: {"/t/a", "/t/b", "/t/c"}, false: {"/t/a", "/t/a/g.dlq", "/t/b", "/t/b/g.dlq", "/t/c", "/t/c/g.dlq"}} {
		for _, limit := range []int32{2, 3} {
			var got []string
			for after, pages := "", 0; pages == 0 || after != ""; pages++ {
				out := must(call(t, c.admin.ListQueues, &pb.ListQueuesRequest{After: after, Limit: limit, WithoutBuiltIn: without}))(t)
				if len(out.Queues) != min(int(limit), len(want)-len(got)) {
					t.Errorf("without: %t: a page of %d has %d queues", without, limit, len(out.Queues))
				}
				for _, q := range out.Queues {
					got = append(got, q.Spec.Path)
				}
				after = out.Next
			}
			if !slices.Equal(got, want) {
				t.Errorf("without: %t: pages of %d have %q", without, limit, got)
			}
		}
	}
}
