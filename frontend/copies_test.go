package frontend

import (
	"context"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// overtaken is a store before which something happens ahead of the next change of a row.
type overtaken struct {
	metadata.Store
	key  metadata.Key
	then func()
}

func (s *overtaken) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if then := s.then; then != nil && t.Name == metadata.Queues.Name && k == s.key {
		s.then = nil
		then()
	}
	return s.Store.Update(ctx, t, k, old, value, ttl)
}

// TestCopies_OvertakenUpdate has an update of a queue overtake another one, which is passing its copies on to a dead
// letter queue: in the end that has as many copies as the queue.
func TestCopies_OvertakenUpdate(t *testing.T) {
	store := &overtaken{Store: memory.New()}
	c := newHarness(t, store)
	must(call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", Replicas: 3, MinReplicas: 1}}))(t)
	c.createGroup("/t/a", "g")
	dlq := must(call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: core.DLQPath("/t/a", "g")}))(t)
	id, err := core.ParseID(dlq.GetId())
	if err != nil {
		t.Fatal(err)
	}
	update := func(replicas int32) {
		spec := &pb.QueueSpec{Path: "/t/a", Replicas: replicas, MinReplicas: 1}
		must(call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: spec, Fields: []string{"replicas", "min_replicas"}}))(t)
	}
	store.key, store.then = metadata.QueueKey(core.QueueID{ID: id}), func() { update(2) }
	update(1)
	for _, path := range []string{"/t/a", core.DLQPath("/t/a", "g")} {
		if q := must(call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: path}))(t); q.GetSpec().GetReplicas() != 2 {
			t.Errorf("%s has %d copies, want 2", path, q.GetSpec().GetReplicas())
		}
	}
}

// made is a store before which something happens ahead of the next creation of a queue's row.
type made struct {
	metadata.Store
	then func()
}

func (s *made) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	if then := s.then; then != nil && t.Name == metadata.Queues.Name {
		s.then = nil
		then()
	}
	return s.Store.Insert(ctx, t, k, value)
}

// TestCopies_UpdatedWhileAGroupIsMade: the queue is updated after the creation of a group has read it, and before the
// group's dead letter queue is there. The dead letter queue has as many copies as the queue all the same.
func TestCopies_UpdatedWhileAGroupIsMade(t *testing.T) {
	store := &made{Store: memory.New()}
	c := newHarness(t, store)
	must(call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", Replicas: 1, MinReplicas: 1}}))(t)
	store.then = func() {
		must(call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", Replicas: 3}}))(t)
	}
	g := c.createGroup("/t/a", "g")
	if q := must(call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: g.DlqPath}))(t); q.GetSpec().GetReplicas() != 3 {
		t.Errorf("its dead letter queue has %d copies, want 3, like the queue", q.GetSpec().GetReplicas())
	}
}

// TestCopies_HalfMadeBeforeAnUpdate: a creation of a group died before its dead letter queue was made, the queue was
// updated, and the group is created again.
func TestCopies_HalfMadeBeforeAnUpdate(t *testing.T) {
	c := newHarness(t, nil)
	must(call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", Replicas: 1, MinReplicas: 1}}))(t)
	c.ctl.fail(core.Errorf(core.CodeUnavailable, "it is not there"))
	_, err := call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g"}})
	wantCode(t, "create without a controller", err, core.CodeUnknown)
	dlq := metadata.QueueKey(core.QueueID{ID: core.ID(c.queueID("/t/a/g.dlq"))})
	_, version, err := metadata.Read[metadata.QueueRecord](t.Context(), c.store, metadata.Queues, dlq, metadata.Serial)
	if err == nil {
		err = metadata.Delete(t.Context(), c.store, metadata.Queues, dlq, version)
	}
	if err != nil {
		t.Fatal(err)
	}
	must(call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", Replicas: 3}}))(t)
	c.ctl.fail(nil)
	c.createGroup("/t/a", "g")
	if q := must(call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: "/t/a/g.dlq"}))(t); q.GetSpec().GetReplicas() != 3 {
		t.Errorf("its dead letter queue has %d copies, want 3, like the queue", q.GetSpec().GetReplicas())
	}
}
