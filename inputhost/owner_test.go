package inputhost

import (
	"context"
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestLookUp_AnotherGroupsQueue: whoever names the group that a built-in queue is to belong to does not get that of
// another group under the same path, as when the group was deleted and made again.
func TestLookUp_AnotherGroupsQueue(t *testing.T) {
	watching(t, func(r *harness, _ *watched) {
		mine, other := core.GroupID{ID: core.ID{1}}, core.GroupID{ID: core.ID{2}}
		user, built := r.queue("/t/user"), r.queue("/t/built")
		if _, err := metadata.Change(context.Background(), r.meta, metadata.Queues, metadata.QueueKey(built), func(q *metadata.QueueRecord) error {
			q.Owner = mine
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			path  string
			owner core.GroupID
			id    core.QueueID
			want  core.Code
		}{
			{"/t/built", mine, built, ""},
			{"/t/built", other, built, core.CodeNotFound},
			{"/t/built", core.GroupID{}, built, ""}, // as earlier builds ask
			{"/t/user", mine, user, core.CodeNotFound},
			{"/t/user", core.GroupID{}, user, ""},
		} {
			hello := &pb.PublishHello{Queue: test.path, Internal: true}
			if !test.owner.IsZero() {
				hello.Owner = test.owner.ID[:]
			}
			q, _, err := r.host.lookUp(context.Background(), hello)
			if core.CodeOf(err) != test.want || err == nil && q.ID != test.id {
				t.Errorf("%s for group %s: %v, queue %s; want %q", test.path, test.owner, err, q.ID, test.want)
			}
		}
	})
}
