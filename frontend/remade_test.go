package frontend

import (
	"context"
	"sync/atomic"
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// frozen is metadata of which one copy has the names and queues as they were at an instant.
type frozen struct {
	metadata.Store
	rows atomic.Pointer[map[metadata.Key]metadata.Row] // nil: the copy is up to date
}

func (s *frozen) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	rows := s.rows.Load()
	if rows == nil || c != metadata.One || t != metadata.Names && t != metadata.Queues {
		return s.Store.Get(ctx, t, k, c)
	}
	if row, ok := (*rows)[k]; ok {
		return row, nil
	}
	return metadata.Row{}, metadata.NoRow(t, k)
}

// TestGroups_PathMadeAgain: the copy of the metadata that is read still has the queue that had the path before. The queue and the group that a majority has
// are found, and that of before was disabled does not count.
func TestGroups_PathMadeAgain(t *testing.T) {
	meta := &frozen{Store: memory.New()}
	c := newHarness(t, meta)
	old := c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	must(call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", Status: string(core.StatusDisabled)}}))(t)
	id := must(core.ParseID(old.Id))(t)
	rows := make(map[metadata.Key]metadata.Row)
	name, queue := metadata.NameKey("/t/a"), metadata.QueueKey(core.QueueID{ID: id})
	rows[name] = must(meta.Store.Get(t.Context(), metadata.Names, name, metadata.Serial))(t)
	rows[queue] = must(meta.Store.Get(t.Context(), metadata.Queues, queue, metadata.Serial))(t)
	must(call(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: "/t/a"}))(t)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	meta.rows.Store(&rows)
	must(call(t, c.msgs.ConsumeRoute, &pb.ConsumeRouteRequest{Queue: "/t/a", Group: "g"}))(t)
	must(call(t, c.msgs.PublishRoute, &pb.PublishRouteRequest{Queue: "/t/a"}))(t)
	if got := must(call(t, c.admin.GetGroup, &pb.GetGroupRequest{Queue: "/t/a", Name: "g"}))(t); got.Id != g.Id {
		t.Errorf("got group %s, want %s", got.Id, g.Id)
	}
	req := &pb.UpdateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g", MaxDeliveries: 3}}
	if got := must(call(t, c.admin.UpdateGroup, req))(t); got.Spec.MaxDeliveries != 3 {
		t.Errorf("got %v, want 3 deliveries", got)
	}
}
