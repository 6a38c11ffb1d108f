package retryqueue

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/deletion"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
)

// TestEnsure_GroupsComeAndGo: hosts make the retry queue of a group while it is deleted and made anew. Their calls come
// late, so that the group may be another one by then. In the end a retry queue that is there is that of the group, and
// has its path.
func TestEnsure_GroupsComeAndGo(t *testing.T) {
	for range 10 {
		synctest.Test(t, groupsComeAndGo)
	}
}

func groupsComeAndGo(t *testing.T) {
	behind := memory.New()
	store := faulty.New(behind, faulty.Faults{Seed: rand.Uint64(), Stale: 0.2, Delay: time.Millisecond})
	defer store.Close()
	ctx := t.Context()
	queue := metadata.QueueRecord{ID: core.QueueID{ID: core.NewID(now)}, Spec: core.QueueSpec{Path: "/t/q", Replicas: 3, MinReplicas: 2, Durability: core.DurabilityFsync, Status: core.StatusEnabled}}
	ok(t, metadata.Create(ctx, behind, metadata.Queues, metadata.QueueKey(queue.ID), queue))
	group(t, behind, queue.ID, 1)
	gone := deletion.Deletion{Meta: store, Now: time.Now, Seal: func(context.Context, core.Extent) error { return nil }}
	key := metadata.GroupKey(queue.ID, "g")
	read := func() metadata.GroupRecord {
		g, _, err := metadata.Read[metadata.GroupRecord](ctx, behind, metadata.Groups, key, metadata.Serial)
		ok(t, err)
		return g
	}
	var mu sync.Mutex
	ensured := make(map[core.GroupID]bool)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 20 {
				g := read()
				time.Sleep(rand.N(3 * time.Millisecond))
				switch rand.IntN(6) {
				case 0:
					if err := gone.Group(ctx, g); err != nil {
						t.Error(err)
					}
				case 1, 2:
					_, _ = metadata.Change(ctx, store, metadata.Groups, key, func(r *metadata.GroupRecord) error {
						if r.Spec.Status != core.StatusDeleted {
							return metadata.ErrNoChange
						}
						*r = metadata.GroupRecord{ID: core.GroupID{ID: core.NewID(time.Now())}, Queue: queue.ID, Started: true, Spec: core.GroupSpec{Queue: "/t/q", Name: "g", Status: core.StatusEnabled}}
						return nil
					})
				default:
					err := Ensure(ctx, store, g, time.Now())
					if err == nil {
						mu.Lock()
						ensured[g.ID] = true
						mu.Unlock()
					} else if core.CodeOf(err) != core.CodeNotFound {
						t.Errorf("ensure: %v", err)
					}
				}
			}
		})
	}
	wg.Wait()
	g := read()
	live := g.Spec.Status != core.StatusDeleted
	name, _, err := metadata.Read[metadata.NameRecord](ctx, behind, metadata.Names, metadata.NameKey("/t/q/g.retry"), metadata.Serial)
	if err != nil && core.CodeOf(err) != core.CodeNotFound {
		t.Fatal(err)
	}
	if live && ensured[g.ID] && (g.Retry.IsZero() || name.Queue != g.Retry) {
		t.Errorf("the retry queue of group %s is %s, and the path names %s", g.ID, g.Retry, name.Queue)
	}
	found := false
	for q, err := range metadata.All[metadata.QueueRecord](ctx, behind, metadata.Queues, metadata.PartitionID, metadata.Serial) {
		ok(t, err)
		if q.Value.Owner.IsZero() || q.Value.Spec.Status == core.StatusDeleted {
			continue
		}
		if !live || q.Value.ID != g.Retry || q.Value.Owner != g.ID {
			t.Errorf("queue %s of group %s is there, and the group is %s (%s), with %s", q.Value.ID, q.Value.Owner, g.ID, g.Spec.Status, g.Retry)
		}
		found = true
	}
	if live && ensured[g.ID] && !found {
		t.Errorf("the retry queue of group %s is not there", g.ID)
	}
}
