package retryqueue

import (
	"context"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

var now = time.UnixMilli(1_700_000_000_000)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// group makes the group anew.
func group(t *testing.T, meta metadata.Store, queue core.QueueID, generation int) metadata.GroupRecord {
	t.Helper()
	g := metadata.GroupRecord{
		ID: core.GroupID{ID: core.NewID(now.Add(time.Duration(generation) * time.Second))}, Queue: queue, Started: true,
		Spec: core.GroupSpec{Queue: "/t/q", Name: "g", Status: core.StatusEnabled},
	}
	_, err := metadata.Change(t.Context(), meta, metadata.Groups, metadata.GroupKey(queue, "g"), func(r *metadata.GroupRecord) error {
		*r = g
		return nil
	})
	if core.CodeOf(err) == core.CodeNotFound {
		err = metadata.Create(t.Context(), meta, metadata.Groups, metadata.GroupKey(queue, "g"), g)
	}
	ok(t, err)
	return g
}

// TestEnsure_OneQueueAGroup makes it twice, takes the name over from an older group that left it behind, and leaves it
// to a newer one; also when the older one was made by a clock that is ahead.
func TestEnsure_OneQueueAGroup(t *testing.T) {
	for name, second := range map[string]int{"clocks agree": 2, "the first is ahead": -60} {
		t.Run(name, func(t *testing.T) { oneQueueAGroup(t, second) })
	}
}

func oneQueueAGroup(t *testing.T, generation int) {
	meta := memory.New()
	ctx := t.Context()
	queue := metadata.QueueRecord{ID: core.QueueID{ID: core.NewID(now)}, Spec: core.QueueSpec{Path: "/t/q", Replicas: 3, MinReplicas: 2, Durability: core.DurabilityFsync, Status: core.StatusEnabled}}
	ok(t, metadata.Create(ctx, meta, metadata.Queues, metadata.QueueKey(queue.ID), queue))
	made := func() (metadata.NameRecord, metadata.QueueRecord) {
		name, _, err := metadata.Read[metadata.NameRecord](ctx, meta, metadata.Names, metadata.NameKey("/t/q/g.retry"), metadata.One)
		ok(t, err)
		q, _, err := metadata.Read[metadata.QueueRecord](ctx, meta, metadata.Queues, metadata.QueueKey(name.Queue), metadata.One)
		ok(t, err)
		return name, q
	}
	old := group(t, meta, queue.ID, 1)
	ok(t, Ensure(ctx, meta, old, now))
	name, q := made()
	if q.Owner != old.ID || q.Home != core.MergedInto(queue.ID, old.ID) || q.Spec.Replicas != 3 || q.Spec.Status != core.StatusEnabled || name.Home != q.Home {
		t.Errorf("made %+v for %+v", q, name)
	}
	ok(t, Ensure(ctx, meta, old, now.Add(time.Hour)))
	if again, _ := made(); again.Queue != name.Queue {
		t.Errorf("made again as %s, was %s", again.Queue, name.Queue)
	}
	fresh := group(t, meta, queue.ID, generation)
	ok(t, Ensure(ctx, meta, fresh, now))
	taken, second := made()
	if taken.Queue == name.Queue || second.Owner != fresh.ID {
		t.Errorf("the name is %+v", taken)
	}
	left, _, err := metadata.Read[metadata.QueueRecord](ctx, meta, metadata.Queues, metadata.QueueKey(name.Queue), metadata.One)
	ok(t, err)
	if left.Spec.Status != core.StatusDeleted {
		t.Errorf("that of the older group is %s", left.Spec.Status)
	}
	if err := Ensure(ctx, meta, old, now); core.CodeOf(err) != core.CodeNotFound {
		t.Errorf("for a group that is gone: %v", err)
	}
	if still, _ := made(); still.Queue != taken.Queue {
		t.Errorf("the older group took it back")
	}
}

// made is a store before which something happens ahead of the creation of a queue's row.
type made struct {
	metadata.Store
	then func()
}

func (s made) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	if t == metadata.Queues {
		s.then()
	}
	return s.Store.Insert(ctx, t, k, value)
}

// TestEnsure_QueueUpdatedMeanwhile: the queue is updated before its retry queue is there to be updated as well.
func TestEnsure_QueueUpdatedMeanwhile(t *testing.T) {
	meta := memory.New()
	queue := metadata.QueueRecord{ID: core.QueueID{ID: core.NewID(now)}, Spec: core.QueueSpec{Path: "/t/q", Replicas: 1, MinReplicas: 1, Durability: core.DurabilityFsync, Status: core.StatusEnabled}}
	ok(t, metadata.Create(t.Context(), meta, metadata.Queues, metadata.QueueKey(queue.ID), queue))
	g := group(t, meta, queue.ID, 1)
	ok(t, Ensure(t.Context(), made{meta, func() {
		_, err := metadata.Change(t.Context(), meta, metadata.Queues, metadata.QueueKey(queue.ID), func(q *metadata.QueueRecord) error {
			q.Spec.Replicas, q.Spec.MinReplicas = 3, 2
			return nil
		})
		ok(t, err)
	}}, g, now))
	g, _, err := metadata.Read[metadata.GroupRecord](t.Context(), meta, metadata.Groups, metadata.GroupKey(queue.ID, "g"), metadata.Serial)
	ok(t, err)
	q, _, err := metadata.Read[metadata.QueueRecord](t.Context(), meta, metadata.Queues, metadata.QueueKey(g.Retry), metadata.Serial)
	ok(t, err)
	if q.Spec.Replicas != 3 || q.Spec.MinReplicas != 2 {
		t.Errorf("the retry queue has %d copies, and at least %d; want 3 and 2, like its queue", q.Spec.Replicas, q.Spec.MinReplicas)
	}
}
