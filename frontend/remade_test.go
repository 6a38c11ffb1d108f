package frontend

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

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

// TestGroups_PathMadeAgain: the copy of the metadata that is read still has the queue that had the path before. The
// queue and the group that a majority has are found, and that of before was disabled does not count.
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

// TestCreateGroup_AfterOneOfAClockAhead: a group was made by a frontend whose clock is ahead, and deleted by one that
// died before it deleted the dead letter queue. Another group takes the name, and replaces that queue.
func TestCreateGroup_AfterOneOfAClockAhead(t *testing.T) {
	c := newHarness(t, nil)
	q := c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	queue := core.QueueID{ID: must(core.ParseID(q.Id))(t)}
	ahead := core.GroupID{ID: core.NewID(time.Now().Add(time.Minute))}
	path := core.DLQPath("/t/a", "g")
	g := must(metadata.Change(t.Context(), c.store, metadata.Groups, metadata.GroupKey(queue, "g"), func(g *metadata.GroupRecord) error {
		g.ID, g.Spec.Status = ahead, core.StatusDeleted
		return nil
	}))(t)
	must(metadata.Change(t.Context(), c.store, metadata.Names, metadata.NameKey(path), func(n *metadata.NameRecord) error { n.Owner = ahead; return nil }))(t)
	must(metadata.Change(t.Context(), c.store, metadata.Queues, metadata.QueueKey(g.DLQ), func(q *metadata.QueueRecord) error { q.Owner = ahead; return nil }))(t)
	fresh := c.createGroup("/t/a", "g")
	name, _, err := metadata.Read[metadata.NameRecord](t.Context(), c.store, metadata.Names, metadata.NameKey(path), metadata.Serial)
	if err != nil || name.Owner != groupID(fresh) {
		t.Errorf("%s belongs to %s: %v; want %s", path, name.Owner, err, fresh.Id)
	}
}
